// rapt bench cpu: attention's speed beside the limits of the machine, measured in the same run.
#include "bench/cpu_bench.hpp"

#include <algorithm>
#include <memory>

#include "bench_report.hpp"
#include "commands.hpp"
#include "console.hpp"
#include "options.hpp"
#include "rapt/error.hpp"
#include "text_file.hpp"

namespace rapt_tool {
namespace {

using rapt::bench::Report;
using rapt::bench::Shape;

struct CpuOptions {
  std::vector<std::string> only;
  std::string shapes_file;
  std::string isa;
  std::string out;
  int32_t threads = 0;
  double seconds = 1;
  bool quick = false;
  bool as_json = false;
};

constexpr double kQuickSeconds = 0.25;

std::vector<Shape> chosen_shapes(const CpuOptions& options) {
  std::vector<Shape> shapes;
  if (options.shapes_file.empty()) {
    shapes = rapt::bench::default_shapes();
  } else {
    shapes = rapt::bench::parse_shapes(read_text_file("--shapes", options.shapes_file),
                                       options.shapes_file);
  }
  std::erase_if(shapes, [&](const Shape& shape) {
    const auto& only = options.only;
    return (options.quick && !shape.quick) ||
           (!only.empty() &&
            std::find(only.begin(), only.end(), to_string(shape.phase)) == only.end());
  });
  if (shapes.empty())
    throw rapt::Error(rapt::ErrorCode::kInvalidArgument,
                      "no shape is left: choose other --only phases, or drop --quick");
  return shapes;
}

void run_bench(const CpuOptions& options) {
  rapt::bench::CpuBenchOptions bench;
  bench.shapes = chosen_shapes(options);
  bench.num_threads = options.threads;
  bench.seconds = options.quick ? kQuickSeconds : options.seconds;
  if (!options.isa.empty()) bench.isa = parse_isa_option("--isa", options.isa);
  ReportWriter writer(options.out, options.as_json);
  Report report;
  {
    Progress bar("measuring", static_cast<int64_t>(bench.shapes.size()) + 1);
    bench.progress = [&](int64_t done, int64_t) { bar.update(done); };
    report = run_cpu_bench(bench);
  }
  writer.write(report);
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed beside the machine's limits");
  bench->require_subcommand(1);
  bench->footer("Example: rapt bench cpu --quick");
  auto options = std::make_shared<CpuOptions>();
  CLI::App* cpu =
      bench->add_subcommand("cpu", "Prefill, decode and planning on the CPU (docs/benchmarks.md)");
  cpu->add_flag("--quick", options->quick, "A few shapes, briefly: seconds instead of minutes");
  cpu->add_option("--only", options->only, "Phases: prefill, decode, plan (comma-separated)")
      ->delimiter(',')
      ->check(CLI::IsMember({"prefill", "decode", "plan"}));
  cpu->add_option("--threads", options->threads, "CPU threads; 0 = the usable cores")
      ->check(CLI::Range(0, 4096));
  cpu->add_option("--isa", options->isa, "CPU instruction set, at most the processor's");
  cpu->add_option("--seconds", options->seconds, "Seconds of warm-up, and again of timing, a shape")
      ->check(CLI::Range(0.001, 3600.0))
      ->check(refuse_nan)
      ->capture_default_str();
  cpu->add_option("--shapes", options->shapes_file, "Shape file; default: shapes/cpu.txt as built");
  cpu->add_flag("--json", options->as_json, "Print one JSON object");
  cpu->add_option("--out", options->out, "Also write the JSON to this file");
  cpu->footer(
      "Examples:\n"
      "  rapt bench cpu --quick\n"
      "  rapt bench cpu --only decode,plan --threads 1\n"
      "  rapt bench cpu --json --out report.json");
  cpu->callback([options] { run_bench(*options); });
  add_bench_generate(*bench);
}

}  // namespace rapt_tool
