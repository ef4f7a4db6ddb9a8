// Checks of a run's, a cache write's and a merge's tensors, the same for every backend, before
// anything is written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rapt/attention.hpp"

namespace rapt {

// What a plan knows of its batch that the tensors of a run must fit.
struct BatchShape {
  int64_t num_requests = 0;
  int64_t num_tokens = 0;         // T
  int64_t num_pages = 0;          // paged: pages of the pool
  int64_t num_kv_rows = 0;        // ragged: kv_start[B]
  int64_t custom_mask_bytes = 0;  // 0 unless spec.custom_mask
  size_t workspace_bytes = 0;
};

// `device` is where every tensor must be.
void validate(const AttentionSpec& spec, const BatchShape& shape, const RunArgs& args,
              const Device& device);
void validate(const AttentionSpec& spec, const WriteKvArgs& args, const Device& device);
void validate(const MergeArgs& args, const Device& device);

}  // namespace rapt
