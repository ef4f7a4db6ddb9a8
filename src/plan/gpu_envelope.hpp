// What plan_work() makes at most of a batch within a graph envelope: a pure host function, that a
// plan's memory and grids are fixed by.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "plan/gpu_plan.hpp"
#include "rapt/graph_envelope.hpp"

namespace rapt::gpu {

struct EnvelopeBounds {
  // To plan the batches with. Those without works take no request.
  std::array<Machine, kMaxTiles> tiles{};
  std::array<int64_t, kMaxTiles> num_works{};
  int64_t num_partial_rows = 0, num_merges = 0;
};

// `tiles` are a kernel's, the one of the fewest rows first. One that takes all rows of a request of
// max_query_len is alone, but the last, which has the first that takes all of a single token beside
// it: a launch without work is taken to cost more than decoding tiles differ by. With
// spec.batch_invariant a request's tile is that of every other plan, so that all are there.
// `envelope` is valid for `spec`. Throws Error where a kernel cannot count what the envelope may
// have.
EnvelopeBounds bounds_of(const GraphEnvelope& envelope, const AttentionSpec& spec,
                         std::span<const Machine> tiles);

}  // namespace rapt::gpu
