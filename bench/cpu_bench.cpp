#include "bench/cpu_bench.hpp"

#include <algorithm>

#include "bench/decode.hpp"
#include "bench/planning.hpp"
#include "bench/prefill.hpp"
#include "bench/threads.hpp"

namespace rapt::bench {

Report run_cpu_bench(const CpuBenchOptions& options) {
  ContextOptions context_options;
  context_options.num_threads = options.num_threads;
  context_options.isa = options.isa;
  Context context(context_options);
  Threads threads(context.num_threads());

  Report report = begin_report(context.device());
  const auto has_phase = [&](Phase phase) {
    return std::any_of(options.shapes.begin(), options.shapes.end(),
                       [&](const Shape& shape) { return shape.phase == phase; });
  };
  const auto append = [&](const std::vector<Limit>& limits) {
    report.limits.insert(report.limits.end(), limits.begin(), limits.end());
  };
  const auto total = static_cast<int64_t>(options.shapes.size()) + 1;
  int64_t done = 0;
  const auto progress = [&] {
    if (options.progress) options.progress(done++, total);
  };
  progress();
  if (has_phase(Phase::kPrefill)) append(compute_limits(context, threads, options.seconds));
  if (has_phase(Phase::kDecode)) append(memory_limits(context, threads, options.seconds));
  for (const Shape& shape : options.shapes) {
    progress();
    switch (shape.phase) {
      case Phase::kPrefill:
        report.figures.push_back(measure_prefill(context, threads, shape, options.seconds));
        break;
      case Phase::kDecode:
        report.figures.push_back(measure_decode(context, threads, shape, options.seconds));
        break;
      case Phase::kPlan:
        for (Figure& figure : measure_planning(context, shape, options.seconds))
          report.figures.push_back(std::move(figure));
        break;
    }
  }
  return report;
}

}  // namespace rapt::bench
