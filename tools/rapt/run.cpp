// rapt run STEP.json: one attention step, timed, and on demand checked against the reference.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>

#include "commands.hpp"
#include "console.hpp"
#include "device_tensors.hpp"
#include "options.hpp"
#include "step.hpp"
#include "step_tensors.hpp"

namespace rapt_tool {
namespace {

struct RunOptions {
  std::string step_file;
  std::string backend;
  std::string device = "cpu";
  std::string isa;
  std::string save_out;
  int32_t threads = 0;
  double seconds = 0.5;
  bool check = false;
  bool as_json = false;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

float load(const HostTensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case rapt::DType::kFloat32:
      return reinterpret_cast<const float*>(tensor.data())[i];
    case rapt::DType::kFloat16: {
      _Float16 half;
      std::memcpy(&half, tensor.data() + 2 * i, 2);
      return static_cast<float>(half);
    }
    default: {
      uint16_t bits;
      std::memcpy(&bits, tensor.data() + 2 * i, 2);
      const uint32_t wide = static_cast<uint32_t>(bits) << 16;
      float value;
      std::memcpy(&value, &wide, 4);
      return value;
    }
  }
}

// Half the distance between 1 and the next value: the largest relative rounding error.
double unit_roundoff(rapt::DType dtype) {
  switch (dtype) {
    case rapt::DType::kFloat32:
      return 0x1p-24;
    case rapt::DType::kFloat16:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

void clear_signs(HostTensor& tensor) {
  const size_t element = rapt::size_of(tensor.dtype());
  for (size_t i = element - 1; i < tensor.bytes(); i += element)
    tensor.data()[i] &= std::byte{0x7f};  // little-endian: the sign is in the last byte
}

// The step's values, or their magnitudes.
enum class Values { kGiven, kAbsolute };

// A step bound to a backend, run once: the cache is filled, the outputs hold the result.
struct Execution {
  const rapt::Context& context;
  std::unique_ptr<rapt::Attention> attention;
  std::unique_ptr<rapt::Plan> plan;
  StepTensors tensors;
  DeviceTensors on_device;
  rapt::DeviceBuffer workspace;
  rapt::RunArgs args;
  double plan_seconds = 0;

  Execution(rapt::Context& where, const Step& step, const std::string& backend,
            Values values = Values::kGiven)
      : context(where), tensors(make_tensors(step)), on_device(where, tensors) {
    if (values == Values::kAbsolute) clear_signs(tensors.v);
    attention = std::make_unique<rapt::Attention>(where, step.spec,
                                                  rapt::SelectOptions{.backend = backend});
    on_device.fill_cache(*attention);
    const rapt::Batch batch = tensors.batch(step);
    plan = std::make_unique<rapt::Plan>(attention->plan(batch));
    const double start = seconds_now();
    attention->replan(*plan, batch);
    plan_seconds = seconds_now() - start;
    const std::vector<std::byte> poison(plan->workspace_bytes(), std::byte{0xff});
    workspace = rapt::DeviceBuffer(where, poison.size());
    workspace.copy_from_host(poison.data(), poison.size());
    args = on_device.run_args(step);
    args.workspace = {workspace.data(), workspace.bytes()};
    run();
    on_device.fetch_outputs();
  }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // And waits until it is done.
  void run() const {
    attention->run(*plan, args);
    context.synchronize();
  }
};

struct Times {
  double median = 0, least = 0, most = 0;
  int64_t rounds = 0;
};

Times time_runs(const Execution& execution, double seconds) {
  std::vector<double> times;
  const double warm_until = seconds_now() + seconds, stop = warm_until + seconds;
  while (seconds_now() < warm_until) execution.run();
  do {
    const double start = seconds_now();
    execution.run();
    times.push_back(seconds_now() - start);
  } while (seconds_now() < stop);
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back(), static_cast<int64_t>(times.size())};
}

// Bytes the step must move at least: every K and V row that some query sees once for each KV head,
// q once in, out once out.
double least_bytes(const Step& step) {
  const double rows = static_cast<double>(step.num_tokens()) * step.spec.num_query_heads +
                      static_cast<double>(visible_keys(step)) * step.spec.num_kv_heads;
  return rows * (step.spec.head_dim_qk + step.spec.dim_vo()) * rapt::size_of(step.spec.dtype);
}

struct Comparison {
  double worst = 0;                 // |out - reference|
  double worst_of_bound = 0;        // the same over the element's bound
  double worst_lse = 0;             // relative to the larger of 1 and |lse|
  int64_t mismatched_specials = 0;  // NaN or infinite in one and not, or differently, in the other
  bool passed() const {
    return worst_of_bound <= 1 && worst_lse <= 1e-3 && mismatched_specials == 0;
  }
};

double largest_norm(const HostTensor& rows) {
  const int64_t dim = rows.shape().back();
  double largest = 0;
  for (int64_t i = 0; i < rows.num_elements(); i += dim) {
    double squares = 0;
    for (int64_t d = 0; d < dim; d++) squares += std::pow(load(rows, i + d), 2);
    largest = std::max(largest, std::sqrt(squares));
  }
  return largest;
}

// No |scale * q . k| of the step is larger (Cauchy-Schwarz).
double largest_score(const Step& step, const StepTensors& tensors) {
  double k_scale = 1;
  for (int64_t i = 0; i < (tensors.k_scale.data() ? tensors.k_scale.num_elements() : 0); i++)
    k_scale = std::max<double>(k_scale, std::abs(load(tensors.k_scale, i)));
  return std::abs(step.spec.resolved_scale()) * k_scale * largest_norm(tensors.q) *
         largest_norm(tensors.k);
}

bool both_finite(double a, double b) {
  return std::isfinite(a) && std::isfinite(b);
}
bool same_special(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// Against the fp64 reference on the same tensors, which runs on the CPU. An element is a sum of p *
// v: rounding each probability p to the dtype moves it by u * sum(p * |v|), which the contract
// allows twice, and its own rounding by u * |out|. The sums are the reference's outputs for |v|.
// Scores are fp32 sums: four roundings of the largest one move a probability as well.
Comparison compare(rapt::Context& host, const Step& step, const Execution& got) {
  const Execution want(host, step, "reference");
  const Execution magnitude(host, step, "reference", Values::kAbsolute);
  const double u = unit_roundoff(step.spec.dtype);
  const double probability_error = u + 4 * 0x1p-24 * largest_score(step, got.tensors);
  Comparison result;
  for (int64_t i = 0; i < got.tensors.out.num_elements(); i++) {
    const double x = load(got.tensors.out, i), y = load(want.tensors.out, i);
    if (!both_finite(x, y)) {
      result.mismatched_specials += !same_special(x, y);
      continue;
    }
    const double bound = 2 * probability_error * std::abs(load(magnitude.tensors.out, i)) +
                         u * std::abs(y) + std::numeric_limits<float>::min();
    result.worst = std::max(result.worst, std::abs(x - y));
    result.worst_of_bound = std::max(result.worst_of_bound, std::abs(x - y) / bound);
  }
  for (int64_t i = 0; step.spec.needs_lse && i < got.tensors.lse.num_elements(); i++) {
    const double x = load(got.tensors.lse, i), y = load(want.tensors.lse, i);
    if (both_finite(x, y))
      result.worst_lse = std::max(result.worst_lse, std::abs(x - y) / std::max(1.0, std::abs(y)));
    else
      result.mismatched_specials += !same_special(x, y);
  }
  return result;
}

void run_step(const RunOptions& options) {
  const Step step = load_step(options.step_file);
  rapt::ContextOptions context_options{.device = parse_context_device_option(options.device),
                                       .num_threads = options.threads,
                                       .log = print_warning};
  if (!options.isa.empty()) context_options.isa = parse_isa_option("--isa", options.isa);
  rapt::Context context(context_options);
  // Before any memory is spent: the backend may refuse.
  select(step.spec, context.device(), {.backend = options.backend});
  const Execution execution(context, step, options.backend);
  if (!options.save_out.empty()) save_npy(options.save_out, execution.tensors.out);
  const Times times = time_runs(execution, options.seconds);
  const double gigabytes = least_bytes(step) / times.median * 1e-9;
  const double gigaflops = 2e-9 * visible_pairs(step) * step.spec.num_query_heads *
                           (step.spec.head_dim_qk + step.spec.dim_vo()) / times.median;
  Comparison comparison;
  if (options.check) {
    rapt::Context host({.num_threads = options.threads});
    comparison = compare(host, step, execution);
  }

  const rapt::Selection& selection = execution.attention->selection();
  const rapt::DeviceInfo& device = context.device();
  const bool on_cpu = device.kind == rapt::DeviceKind::kCpu;
  if (options.as_json) {
    Json report{{"step", step.name},
                {"device", device.name},
                {"backend", to_string(selection.backend)},
                {"isa", on_cpu ? Json(to_string(device.isa)) : Json()},
                {"threads", context.num_threads()},
                {"plan", execution.plan->describe()},
                {"plan_seconds", execution.plan_seconds},
                {"workspace_bytes", execution.plan->workspace_bytes()},
                {"median_seconds", times.median},
                {"least_seconds", times.least},
                {"most_seconds", times.most},
                {"rounds", times.rounds},
                {"gigabytes_per_second", gigabytes},
                {"gigaflops_per_second", gigaflops}};
    if (options.check)
      report["check"] = {{"passed", comparison.passed()},
                         {"worst", comparison.worst},
                         {"worst_of_bound", comparison.worst_of_bound},
                         {"worst_lse", comparison.worst_lse},
                         {"mismatched_specials", comparison.mismatched_specials}};
    print_json(report);
  } else {
    std::printf("step      %s\n", step.name.c_str());
    if (on_cpu)
      std::printf("backend   %s, %s, %d threads\n", to_string(selection.backend),
                  to_string(device.isa), context.num_threads());
    else
      std::printf("backend   %s %d, %s\n", to_string(selection.backend), selection.version,
                  device.name.c_str());
    std::printf("plan      %s (%.1f us)\n", execution.plan->describe().c_str(),
                execution.plan_seconds * 1e6);
    std::printf("time      %.3f ms median, %.3f to %.3f over %lld runs\n", times.median * 1e3,
                times.least * 1e3, times.most * 1e3, static_cast<long long>(times.rounds));
    std::printf("rate      %.1f GB/s, %.1f GFLOP/s\n", gigabytes, gigaflops);
    if (options.check)
      std::printf("check     %s: worst |out - reference| %.3g, %.0f %% of its bound at most%s\n",
                  comparison.passed() ? "passed" : "FAILED", comparison.worst,
                  100 * comparison.worst_of_bound,
                  comparison.mismatched_specials ? ", NaN or infinities differ" : "");
  }
  if (options.check && !comparison.passed())
    throw std::runtime_error("the output differs from the reference's by more than the bound");
}

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* run =
      app.add_subcommand("run", "Run one attention step described in a JSON file, and time it");
  run->add_option("step", options->step_file, "Step file (docs/step_files.md)")->required();
  run->add_option("--backend", options->backend, "Backend by name; default: by priority");
  run->add_option("--device", options->device, "Where to run: cpu, cuda[:N] or emulated-smNN")
      ->capture_default_str();
  run->add_option("--isa", options->isa, "CPU instruction set, at most the processor's");
  run->add_option("--threads", options->threads, "CPU threads; 0 = the usable cores")
      ->check(CLI::Range(0, 4096));
  run->add_option("--seconds", options->seconds, "Seconds of warm-up, and again of timing")
      ->check(CLI::Range(0.0, 3600.0))
      ->check(refuse_nan)
      ->capture_default_str();
  run->add_option("--save-out", options->save_out, "Write the output to this .npy file");
  run->add_flag("--check", options->check, "Compare with the fp64 reference; exit code 1 if off");
  run->add_flag("--json", options->as_json, "Print one JSON object");
  run->footer(
      "Examples:\n"
      "  rapt run examples/steps/decode.json --check\n"
      "  rapt run examples/steps/window.json --device emulated-sm80 --check");
  run->callback([options] { run_step(*options); });
}

}  // namespace rapt_tool
