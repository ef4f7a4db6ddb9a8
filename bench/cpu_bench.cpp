#include "bench/cpu_bench.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "bench/decode.hpp"
#include "bench/planning.hpp"
#include "bench/prefill.hpp"
#include "bench/threads.hpp"
#include "rapt/version.hpp"

namespace rapt::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "unknown";
}

// ISO 8601, UTC.
std::string date_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

}  // namespace

const char* to_string(Measure measure) {
  switch (measure) {
    case Measure::kGigaflops:
      return "GFLOP/s";
    case Measure::kGigabytes:
      return "GB/s";
    case Measure::kMicroseconds:
      return "us";
  }
  return "unknown";
}

Report run_cpu_bench(const CpuBenchOptions& options) {
  ContextOptions context_options;
  context_options.num_threads = options.num_threads;
  context_options.isa = options.isa;
  Context context(context_options);
  Threads threads(context.num_threads());

  Report report;
  report.version = version();
  report.date = date_now();
  report.cpu_model = cpu_model();
  report.device = context.device();
  if (getloadavg(&report.load_average, 1) != 1) report.load_average = -1;

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
