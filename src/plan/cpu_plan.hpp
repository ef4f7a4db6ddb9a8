// From a batch's lengths to the CPU backend's list of work: a pure host function.
//
// The step's work is laid out on one line, request after request, and measured in nanoseconds of
// one thread (bytes of K and V over read bandwidth, or flops over the arithmetic rate, whichever
// takes longer). The line is cut into ranges of equal length, a few for each thread; a cut that
// falls inside a request splits its keys there, unless the partial results would cost more than the
// balance is worth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/work.hpp"
#include "problem/visibility.hpp"
#include "rapt/batch.hpp"
#include "rapt/device.hpp"
#include "rapt/spec.hpp"

namespace rapt::cpu {

// What the planner knows of the machine and its kernels. Rates are one thread's.
struct Machine {
  int32_t num_threads = 1;
  double read_bytes_per_ns = 14;
  double flops_per_ns = 100;
  int32_t max_decode_rows = 16;  // a request with more rows for each KV head is prefill
  int32_t max_prefill_rows = 1024;
  size_t prefill_scratch_bytes = 0, decode_scratch_bytes = 0;  // of one thread for works of a phase
};

// Nominal rates of a CPU for a spec's element type. They only weigh work against other work, so
// being off by a factor that is the same for all of it changes nothing.
Machine machine_of(const DeviceInfo& device, const AttentionSpec& spec);

struct WorkList {
  std::vector<Work> works;
  std::vector<int32_t>
      ranges;  // works of range i are [ranges[i], ranges[i + 1]); ranges cost alike
  std::vector<Merge> merges;
  int64_t num_merged_rows = 0;
  int64_t num_partial_rows = 0;
  int64_t most_folded_rows = 0;  // of one work
  int64_t partial_stride = 0;    // floats from one partial output row to the next

  // Workspace: scratch of slot 0, 1, ...; partial outputs; partial lses. Offsets are 64-byte
  // aligned. Of a slot's scratch the kernel's comes first, then the FoldLayout.
  int32_t num_slots = 0;  // threads that can be of use; each works in its own slot
  size_t fold_offset = 0, scratch_stride = 0, partial_out_offset = 0, partial_lse_offset = 0;
  size_t workspace_bytes = 0;

  int32_t num_ranges() const {
    return ranges.empty() ? 0 : static_cast<int32_t>(ranges.size()) - 1;
  }

  // The planner's own, kept for their capacity: what each request is and costs, and the rows that
  // one is cut into for each KV head.
  struct Lengths {
    int64_t index = 0, query_len = 0, kv_len = 0, rows = 0;
    Phase phase = Phase::kDecode;
    KeyRange keys{};  // that some row sees
    double ns = 0;
  };
  struct Tile {
    int64_t row_begin, row_end;
    KeyRange keys;  // that some row sees
    double mean_keys;
  };
  std::vector<Lengths> lengths;
  std::vector<Tile> tiles;
};

// Fills `list`, reusing its memory. `batch` is valid for `spec`. With spec.batch_invariant each
// request is cut as if it were alone on a nominal machine, whatever `machine` and the others are.
void plan_work(const Batch& batch, const AttentionSpec& spec, const Machine& machine,
               WorkList& list);

}  // namespace rapt::cpu
