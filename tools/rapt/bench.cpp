// rapt bench cpu: attention's speed beside the limits of the machine, measured in the same run.
#include "bench/cpu_bench.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include "commands.hpp"
#include "console.hpp"
#include "rapt/error.hpp"

namespace rapt_tool {
namespace {

using rapt::bench::Figure;
using rapt::bench::Limit;
using rapt::bench::Report;
using rapt::bench::Shape;

struct BenchOptions {
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

Json to_json(const rapt::bench::Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

Json to_json(const Limit& limit) {
  Json json{{"name", limit.name}, {"unit", to_string(limit.measure)}};
  json.update(to_json(limit.spread));
  return json;
}

Json to_json(const Report& report) {
  Json limits = Json::array(), figures = Json::array();
  for (const Limit& limit : report.limits) limits.push_back(to_json(limit));
  for (const Figure& figure : report.figures) {
    Json json{{"phase", figure.phase},
              {"shape", figure.shape},
              {"backend", figure.backend},
              {"plan", figure.plan},
              {"unit", to_string(figure.measure)}};
    json.update(to_json(figure.spread));
    json["rounds"] = figure.rounds;
    json["microseconds"] = figure.microseconds;
    json["beside"] = Json::array();
    for (const Figure::Beside& beside : figure.beside) {
      Json limit = to_json(beside.limit);
      limit["share"] = beside.share;
      json["beside"].push_back(limit);
    }
    figures.push_back(json);
  }
  return {{"rapt", report.version},
          {"date", report.date},
          {"machine",
           {{"cpu", report.cpu_model},
            {"isa", to_string(report.device.isa)},
            {"threads", report.device.num_cores},
            {"l1_bytes", report.device.l1_bytes},
            {"l2_bytes", report.device.l2_bytes},
            {"l3_bytes", report.device.l3_bytes},
            {"load_average", report.load_average}}},
          {"limits", limits},
          {"figures", figures}};
}

std::string to_text(const rapt::bench::Spread& spread, rapt::bench::Measure measure) {
  char text[96];
  std::snprintf(text, sizeof text, "%8.1f %s (%.1f - %.1f)", spread.median, to_string(measure),
                spread.low, spread.high);
  return text;
}

void print(const Report& report) {
  std::printf("rapt %s on %s: %s, %d threads, L2 %lld KiB, L3 %lld KiB, load %.2f, %s\n",
              report.version.c_str(), report.cpu_model.c_str(), to_string(report.device.isa),
              report.device.num_cores, static_cast<long long>(report.device.l2_bytes >> 10),
              static_cast<long long>(report.device.l3_bytes >> 10), report.load_average,
              report.date.c_str());
  std::printf("Each figure: median (lowest - highest round); shares: median over rounds.\n");
  if (!report.limits.empty()) std::printf("\nlimits\n");
  for (const Limit& limit : report.limits)
    std::printf("  %-34s %s\n", limit.name.c_str(), to_text(limit.spread, limit.measure).c_str());
  std::string phase;
  for (const Figure& figure : report.figures) {
    if (figure.phase != phase) std::printf("\n%s\n", figure.phase.c_str());
    phase = figure.phase;
    // The plan's line begins with the backend's name.
    std::printf("  %s\n    %s\n    %s", figure.shape.c_str(), figure.plan.c_str(),
                to_text(figure.spread, figure.measure).c_str());
    if (figure.measure != rapt::bench::Measure::kMicroseconds)
      std::printf(", %.0f us", figure.microseconds);
    std::printf(", %lld rounds\n", static_cast<long long>(figure.rounds));
    for (const Figure::Beside& beside : figure.beside)
      std::printf("      %5.1f %% of %-24s %s\n", beside.share * 100, beside.limit.name.c_str(),
                  to_text(beside.limit.spread, beside.limit.measure).c_str());
  }
}

std::vector<Shape> chosen_shapes(const BenchOptions& options) {
  std::vector<Shape> shapes;
  if (options.shapes_file.empty()) {
    shapes = rapt::bench::default_shapes();
  } else {
    std::ifstream file(options.shapes_file);
    std::stringstream text;
    text << file.rdbuf();
    if (!file)
      throw rapt::Error(rapt::ErrorCode::kIo,
                        "--shapes is \"" + options.shapes_file + "\": cannot be read");
    shapes = rapt::bench::parse_shapes(text.str(), options.shapes_file);
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

void run_bench(const BenchOptions& options) {
  rapt::bench::CpuBenchOptions bench;
  bench.shapes = chosen_shapes(options);
  bench.num_threads = options.threads;
  bench.seconds = options.quick ? kQuickSeconds : options.seconds;
  if (!options.isa.empty()) {
    bench.isa = rapt::parse_cpu_isa(options.isa);
    if (!bench.isa)
      throw rapt::Error(rapt::ErrorCode::kInvalidArgument,
                        "--isa is \"" + options.isa +
                            "\": must be baseline, avx2, avx512, avx512_bf16 or amx_bf16");
  }
  // Opened before minutes of measuring, so that a wrong path costs none of them.
  std::ofstream out;
  if (!options.out.empty()) {
    out.open(options.out);
    if (!out)
      throw rapt::Error(rapt::ErrorCode::kIo,
                        "--out is \"" + options.out + "\": cannot be written");
  }
  Report report;
  {
    Progress bar("measuring", static_cast<int64_t>(bench.shapes.size()) + 1);
    bench.progress = [&](int64_t done, int64_t) { bar.update(done); };
    report = run_cpu_bench(bench);
  }
  if (options.as_json) {
    print_json(to_json(report));
  } else {
    print(report);
  }
  if (out.is_open()) {
    out << to_json(report).dump(2) << '\n';
    if (!out.flush())
      throw rapt::Error(rapt::ErrorCode::kIo,
                        "--out is \"" + options.out + "\": could not be written");
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed beside the machine's limits");
  bench->require_subcommand(1);
  bench->footer("Example: rapt bench cpu --quick");
  auto options = std::make_shared<BenchOptions>();
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
}

}  // namespace rapt_tool
