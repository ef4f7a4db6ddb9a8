// Decode attention beside what reading the same bytes costs.
#pragma once

#include "bench/report.hpp"
#include "bench/shapes.hpp"
#include "bench/threads.hpp"
#include "rapt/context.hpp"

namespace rapt::bench {

// Of memory: one long run a thread, and pages of 64 KiB in shuffled order without and with
// prefetching. Of the last-level cache: 8 MiB again and again.
std::vector<Limit> memory_limits(Context& context, Threads& threads, double seconds);

// `seconds` of warm-up, and again of measurement.
Figure measure_decode(Context& context, Threads& threads, const Shape& shape, double seconds);

}  // namespace rapt::bench
