// Prefill attention beside the peak of the arithmetic unit it runs on.
#pragma once

#include "bench/report.hpp"
#include "bench/shapes.hpp"
#include "bench/threads.hpp"
#include "rapt/context.hpp"

namespace rapt::bench {

// The peaks of all units of the context's ISA level, one after the other, the fastest first.
std::vector<Limit> compute_limits(Context& context, Threads& threads, double seconds);

// `seconds` of warm-up, and again of measurement.
Figure measure_prefill(Context& context, Threads& threads, const Shape& shape, double seconds);

}  // namespace rapt::bench
