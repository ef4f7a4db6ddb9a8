// rapt bench generate: a model's prefill and decode, beside a plain read of the weights, which
// every decoded token must read.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/memory_limits.hpp"
#include "bench/report.hpp"
#include "bench/rounds.hpp"
#include "bench/threads.hpp"
#include "bench_report.hpp"
#include "commands.hpp"
#include "llm/engine/engine.hpp"
#include "options.hpp"
#include "rapt/rapt.hpp"

namespace rapt_tool {
namespace {

using rapt::bench::Figure;
using rapt::bench::Measure;

struct BenchGenerateOptions {
  std::string model, kv_dtype = "auto", isa, out;
  int64_t prompt_tokens = 512, decode_tokens = 128;
  int32_t page_size = 16, num_threads = 0;
  double seconds = 4;
  bool as_json = false;
};

// Decoding begins behind a prompt as short as a question.
constexpr int64_t kDecodePrompt = 16;
constexpr double kGiga = 1e-9;
constexpr rapt::SamplingParams kGreedy{.temperature = 0};

llm::EngineOptions engine_options(const BenchGenerateOptions& options) {
  const int64_t longest =
      std::max(options.prompt_tokens + 1, kDecodePrompt + options.decode_tokens + 1);
  llm::EngineOptions engine{.num_threads = options.num_threads,
                            .kv_format = parse_kv_format_option("--kv-dtype", options.kv_dtype),
                            .page_size = options.page_size,
                            .num_pages = (longest + options.page_size - 1) / options.page_size};
  if (!options.isa.empty()) engine.isa = parse_isa_option("--isa", options.isa);
  return engine;
}

// Any tokens do for speed.
std::vector<int32_t> random_prompt(int64_t length, int64_t vocab_size) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(vocab_size) - 1);
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; i++) prompt.push_back(token(random));
  return prompt;
}

void run(const BenchGenerateOptions& options) {
  ReportWriter writer(options.out, options.as_json);
  llm::Model model =
      llm::load_model(options.model, {.num_threads = options.num_threads, .keep_format = true});
  // A text ends by its length.
  model.config.bos_id = -1;
  model.config.eos_ids.clear();
  llm::Engine engine(std::move(model), engine_options(options));
  const llm::Transformer& transformer = engine.transformer();
  const int64_t vocab_size = transformer.config().vocab_size;

  const std::vector<llm::GenerationRequest> prefill{
      {.prompt = random_prompt(options.prompt_tokens, vocab_size),
       .max_tokens = 1,
       .sampling = kGreedy}};
  // The first token comes out of the prefill.
  const std::vector<llm::GenerationRequest> decode{
      {.prompt = random_prompt(kDecodePrompt, vocab_size),
       .max_tokens = options.decode_tokens + 1,
       .sampling = kGreedy}};
  const int64_t mean_context = kDecodePrompt + (options.decode_tokens + 1) / 2;
  // Every weight once, and the keys and values of the context.
  const int64_t token_bytes = transformer.dense_layers().weight_bytes() +
                              transformer.cache_bytes_per_token() * mean_context;

  rapt::bench::Report report = rapt::bench::begin_report(engine.context().device());
  rapt::bench::Threads threads(engine.context().num_threads());
  // The weights where they lie, for memory is not equally fast everywhere.
  std::vector<rapt::bench::Run> weights;
  int64_t read_bytes = 0;
  for (const auto run : transformer.dense_layers().weight_runs()) {
    weights.push_back({run.data(), static_cast<int64_t>(run.size())});
    read_bytes += weights.back().bytes;
  }
  const auto gigabytes = [&](int64_t bytes, double seconds) {
    return static_cast<double>(bytes * options.decode_tokens) / seconds * kGiga;
  };
  const std::function<double()> measures[] = {
      [&] {
        engine.generate(prefill);
        return static_cast<double>(options.prompt_tokens) / engine.stats().prefill_seconds;
      },
      [&] {
        engine.generate(decode);
        return gigabytes(token_bytes, engine.stats().decode_seconds);
      },
      [&] {
        double seconds = 0;
        for (int64_t i = 0; i < options.decode_tokens; i++)
          seconds += rapt::bench::read_runs(threads, weights);
        return gigabytes(read_bytes, seconds);
      }};
  const rapt::bench::Rounds rounds = rapt::bench::interleave(measures, options.seconds);

  const std::string backend = to_string(transformer.attention().selection().backend);
  const std::string plan =
      backend + ": " + std::to_string(transformer.dense_layers().weight_bytes()) +
      " bytes of weights, " + std::to_string(transformer.cache_bytes_per_token()) +
      " bytes of cache a token of context";
  const auto figure = [&](const char* phase, const std::string& what, size_t measure, Measure unit,
                          double tokens_of_unit) {
    Figure& added = report.figures.emplace_back(
        Figure{phase, options.model + ", " + what, backend, plan, unit});
    const rapt::bench::Spread spread = rounds.spread(measure);
    added.spread = {spread.low * tokens_of_unit, spread.median * tokens_of_unit,
                    spread.high * tokens_of_unit};
    added.rounds = rounds.count();
    added.timed = "token";
  };
  const std::string decoded =
      std::to_string(options.decode_tokens) + " tokens after " + std::to_string(kDecodePrompt);
  figure("prefill", std::to_string(options.prompt_tokens) + " tokens", 0, Measure::kTokens, 1);
  report.figures.back().microseconds = 1e6 / report.figures.back().spread.median;
  figure("decode", decoded, 1, Measure::kTokens, 1 / (static_cast<double>(token_bytes) * kGiga));
  const double token_us = 1e6 / report.figures.back().spread.median;
  report.figures.back().microseconds = token_us;
  figure("decode", decoded + ", bytes read", 1, Measure::kGigabytes, 1);
  report.figures.back().microseconds = token_us;
  report.figures.back().beside.push_back(
      {{"weights read in sequence", Measure::kGigabytes, rounds.spread(2)}, rounds.ratio(1, 2)});
  writer.write(report);
}

}  // namespace

void add_bench_generate(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "generate", "A model's prefill and decode on the CPU (docs/benchmarks.md)");
  auto o = std::make_shared<BenchGenerateOptions>();
  command->add_option("--model", o->model, "As for rapt generate")->required();
  command->add_option("--prompt-tokens", o->prompt_tokens, "Tokens of the prefill")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--decode-tokens", o->decode_tokens, "Tokens decoded a round")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--kv-dtype", o->kv_dtype, "Format of the KV cache; auto = fp32")
      ->capture_default_str();
  command->add_option("--page-size", o->page_size, "Tokens per page")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--threads", o->num_threads, "CPU threads; 0 = the usable cores")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_option("--isa", o->isa, "CPU instruction set, at most the processor's");
  command->add_option("--seconds", o->seconds, "Seconds of warm-up, and again of timing")
      ->check(CLI::Range(0.001, 3600.0))
      ->check(refuse_nan)
      ->capture_default_str();
  command->add_flag("--json", o->as_json, "Print one JSON object");
  command->add_option("--out", o->out, "Also write the JSON to this file");
  command->footer("Example: rapt bench generate --model model.gguf --threads 2");
  command->callback([o] { run(*o); });
}

}  // namespace rapt_tool
