// rapt bench cpu: attention's speed beside the limits of the machine, measured in the same run.
// rapt bench launch: what a step on a GPU costs the host.
#include "bench/cpu_bench.hpp"

#include <algorithm>
#include <memory>

#include "bench/launch.hpp"
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

// Of both.
struct ShapesOptions {
  std::string shapes_file;
  std::string out;
  double seconds = 1;
  bool quick = false;
  bool as_json = false;
};

struct CpuOptions : ShapesOptions {
  std::vector<std::string> only;
  std::string isa;
  int32_t threads = 0;
};

struct LaunchOptions : ShapesOptions {
  std::string device = "cuda";
};

constexpr double kQuickSeconds = 0.25;

// Those of the file, or else `defaults`, of these phases.
std::vector<Shape> chosen_shapes(const ShapesOptions& options, std::vector<Shape> defaults,
                                 const std::vector<std::string>& only) {
  std::vector<Shape> shapes = std::move(defaults);
  if (!options.shapes_file.empty())
    shapes = rapt::bench::parse_shapes(read_text_file("--shapes", options.shapes_file),
                                       options.shapes_file);
  std::erase_if(shapes, [&](const Shape& shape) {
    return (options.quick && !shape.quick) ||
           std::find(only.begin(), only.end(), to_string(shape.phase)) == only.end();
  });
  if (shapes.empty())
    throw rapt::Error(rapt::ErrorCode::kInvalidArgument,
                      "no shape is left of " +
                          (options.shapes_file.empty() ? "the default ones" : options.shapes_file) +
                          (options.quick ? ": drop --quick" : ": none is of a phase asked for"));
  return shapes;
}

double seconds_of(const ShapesOptions& options) {
  return options.quick ? kQuickSeconds : options.seconds;
}

void run_cpu(const CpuOptions& options) {
  rapt::bench::CpuBenchOptions bench;
  bench.shapes = chosen_shapes(options, rapt::bench::default_cpu_shapes(), options.only);
  bench.num_threads = options.threads;
  bench.seconds = seconds_of(options);
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

void run_launch(const LaunchOptions& options) {
  rapt::bench::LaunchBenchOptions bench;
  bench.shapes =
      chosen_shapes(options, rapt::bench::default_launch_shapes(), {"prefill", "decode"});
  bench.device = parse_context_device_option(options.device);
  bench.seconds = seconds_of(options);
  ReportWriter writer(options.out, options.as_json);
  Report report;
  {
    Progress bar("measuring", static_cast<int64_t>(bench.shapes.size()));
    bench.progress = [&](int64_t done, int64_t) { bar.update(done); };
    report = run_launch_bench(bench);
  }
  writer.write(report);
}

void add_shapes_options(CLI::App& app, ShapesOptions& options, const std::string& default_file) {
  app.add_flag("--quick", options.quick, "A few shapes, briefly: seconds instead of minutes");
  app.add_option("--seconds", options.seconds, "Seconds of warm-up, and again of timing, a shape")
      ->check(CLI::Range(0.001, 3600.0))
      ->check(refuse_nan)
      ->capture_default_str();
  app.add_option("--shapes", options.shapes_file,
                 "Shape file; default: " + default_file + " as built");
  app.add_flag("--json", options.as_json, "Print one JSON object");
  app.add_option("--out", options.out, "Also write the JSON to this file");
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed beside the machine's limits");
  bench->require_subcommand(1);
  bench->footer("Example: rapt bench cpu --quick");
  auto for_cpu = std::make_shared<CpuOptions>();
  for_cpu->only = {"prefill", "decode", "plan"};
  CLI::App* cpu =
      bench->add_subcommand("cpu", "Prefill, decode and planning on the CPU (docs/benchmarks.md)");
  add_shapes_options(*cpu, *for_cpu, "shapes/cpu.txt");
  cpu->add_option("--only", for_cpu->only, "Phases: prefill, decode, plan (comma-separated)")
      ->delimiter(',')
      ->check(CLI::IsMember({"prefill", "decode", "plan"}));
  cpu->add_option("--threads", for_cpu->threads, "CPU threads; 0 = the usable cores")
      ->check(CLI::Range(0, 4096));
  cpu->add_option("--isa", for_cpu->isa, "CPU instruction set, at most the processor's");
  cpu->footer(
      "Examples:\n"
      "  rapt bench cpu --quick\n"
      "  rapt bench cpu --only decode,plan --threads 1\n"
      "  rapt bench cpu --json --out report.json");
  cpu->callback([for_cpu] { run_cpu(*for_cpu); });

  auto for_launch = std::make_shared<LaunchOptions>();
  CLI::App* launch =
      bench->add_subcommand("launch", "What planning and running a step on a GPU take of the host");
  add_shapes_options(*launch, *for_launch, "shapes/launch.txt");
  launch->add_option("--device", for_launch->device, "cuda, cuda:N, or emulated-smNN")
      ->capture_default_str();
  launch->footer("Example: rapt bench launch --device cuda:0 --seconds 0.5");
  launch->callback([for_launch] { run_launch(*for_launch); });
  add_bench_generate(*bench);
}

}  // namespace rapt_tool
