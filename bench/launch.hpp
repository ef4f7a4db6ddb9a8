// What a step costs the host where attention runs on a GPU.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/report.hpp"
#include "bench/shapes.hpp"
#include "rapt/context.hpp"

namespace rapt::bench {

// Figures in microseconds: of the host for replan(); for a run(), one of a model's layers that
// follow each other; for both where the device has been at rest, the plan's copy to it included.
// And for a run with the wait for all of them at the end, which is the GPU's time where that is
// more than the host's.
// Throws Error(kInvalidArgument) for caches other than of pages_kv and NHD.
std::vector<Figure> measure_launch(Context& context, const Shape& shape, double seconds);

struct LaunchBenchOptions {
  std::vector<Shape> shapes;
  std::string device = "cuda";
  double seconds = 1;  // of measurement for each shape; as much again of warm-up before
  std::function<void(int64_t done, int64_t total)> progress;  // may be empty
};
Report run_launch_bench(const LaunchBenchOptions& options);

}  // namespace rapt::bench
