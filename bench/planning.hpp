// What a step's plan costs on the host.
#pragma once

#include "bench/report.hpp"
#include "bench/shapes.hpp"
#include "rapt/context.hpp"

namespace rapt::bench {

// Two figures: replan() into a plan that has its memory, and plan() that makes a new one.
std::vector<Figure> measure_planning(Context& context, const Shape& shape, double seconds);

}  // namespace rapt::bench
