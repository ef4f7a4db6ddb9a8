// Merging partial states by their log-sum-exp: of split keys, and of merge()'s callers.
#pragma once

#include <cstdint>
#include <span>

#include "backends/cpu/kernels.hpp"
#include "rapt/attention.hpp"

namespace rapt::cpu {

// Merged rows [row_begin, row_end) of the list: reads their partial states, joins the sink, writes
// out and lse.
void merge_partials(const Problem& problem, const Request* requests, std::span<const Merge> merges,
                    const Partials& partials, int64_t row_begin, int64_t row_end);

// The result of row `row` of KV head `kv_head`, the sink joined, from a state in fp64: the sum of
// exp(score - max) of its keys, and `values` [Dvo], their sum times that. Sum 0: it saw no key.
void write_state(const Problem& problem, const Request& request, int64_t kv_head, int64_t row,
                 const double* values, double max, double sum);

// Rows [row_begin, row_end) of merge(): row r is token r / heads, head r % heads. `args` is valid.
void merge_states(const MergeArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace rapt::cpu
