// The CPU's cache writer, shared by the CPU backends.
#pragma once

#include <cstdint>

#include "rapt/attention.hpp"
#include "rapt/context.hpp"

namespace rapt {

// Copies row t of k and v to slot slot_mapping[t] of the cache, for every slot that is not
// negative, and touches no other byte. `args` is validated (problem/run_args.hpp): any strides, the
// cache of an unquantised format. With scales, stored = value / scale; where the cache's element
// type is not k's, values are rounded to it. With rope, keys are rotated before that, and queries.
// If a slot is named twice, which of its rows stays is not specified, and may be a mixture of both.
void write_kv(const WriteKvArgs& args, const ParallelFor& parallel_for, int32_t num_threads);

}  // namespace rapt
