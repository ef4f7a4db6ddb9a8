// The whole benchmark: limits first, then every shape beside them.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "bench/report.hpp"
#include "bench/shapes.hpp"
#include "rapt/context.hpp"

namespace rapt::bench {

struct CpuBenchOptions {
  std::vector<Shape> shapes;
  int32_t num_threads = 0;  // 0 = the processors this process may use
  std::optional<CpuIsa> isa;
  double seconds = 1;  // of measurement for each shape; as much again of warm-up before
  std::function<void(int64_t done, int64_t total)> progress;  // may be empty
};

// Limits of what the shapes' phases need: arithmetic for prefill, memory for decode.
Report run_cpu_bench(const CpuBenchOptions& options);

}  // namespace rapt::bench
