// rapt generate: text from a Llama-architecture model, every layer's attention by Rapt.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "commands.hpp"
#include "console.hpp"
#include "llm/engine/engine.hpp"
#include "llm/model/gguf.hpp"
#include "llm/tokenizer/tokenizer.hpp"
#include "options.hpp"
#include "rapt/rapt.hpp"
#include "text_file.hpp"

namespace rapt_tool {
namespace {

struct GenerateOptions {
  std::string model, tokenizer, prompts_file, device = "cpu", dense = "auto", kv_dtype = "auto",
                                              backend, isa;
  std::vector<std::string> prompts;
  int64_t max_tokens = 128, num_pages = 0, tokens_per_step = 512;
  int32_t page_size = 16, num_threads = 0;
  rapt::SamplingParams sampling;
  bool json = false, stats = false;
};

[[noreturn]] void refuse(const std::string& message,
                         rapt::ErrorCode code = rapt::ErrorCode::kInvalidArgument) {
  throw rapt::Error(code, message);
}

// Where the tokenizer is: a GGUF file has its own, a Hugging Face directory has it beside the
// weights, and llama2.c keeps it in a file of one of two names.
std::string tokenizer_path(const GenerateOptions& options) {
  namespace fs = std::filesystem;
  if (!fs::exists(options.model))
    refuse("--model " + options.model + ": no such file or directory", rapt::ErrorCode::kIo);
  if (!options.tokenizer.empty()) return options.tokenizer;
  const fs::path model(options.model);
  if (model.extension() == ".safetensors")
    return model.parent_path().empty() ? "." : model.parent_path();
  if (model.extension() != ".bin") {
    if (fs::is_regular_file(model) &&
        !llm::GgufFile::recognises(llm::MappedFile(options.model).view().bytes))
      refuse("--model " + options.model +
                 ": does not begin with GGUF, and is named neither .bin (llama2.c) nor "
                 ".safetensors",
             rapt::ErrorCode::kIo);
    return options.model;
  }
  for (const char* name : {"tok512.bin", "tokenizer.bin"})
    if (fs::exists(model.parent_path() / name)) return model.parent_path() / name;
  refuse(options.model +
         " has no tokenizer, and neither tok512.bin nor tokenizer.bin is beside it: "
         "give one with --tokenizer");
}

std::vector<std::string> read_prompts(const GenerateOptions& options) {
  if (options.prompts_file.empty())
    return options.prompts.empty() ? std::vector<std::string>{""} : options.prompts;
  std::istringstream lines(read_text_file("--prompts", options.prompts_file));
  std::vector<std::string> prompts;
  for (std::string line; std::getline(lines, line);) prompts.push_back(line);
  if (prompts.empty()) refuse("--prompts " + options.prompts_file + " is empty: one prompt a line");
  return prompts;
}

rapt::KvFormat kv_format(const GenerateOptions& options) {
  return parse_kv_format_option("--kv-dtype", options.kv_dtype);
}

llm::DensePlace dense_place(const GenerateOptions& options) {
  if (options.dense == "host") return llm::DensePlace::kHost;
  return options.dense == "device" ? llm::DensePlace::kDevice : llm::DensePlace::kAuto;
}

llm::EngineOptions engine_options(const GenerateOptions& options,
                                  const std::vector<llm::GenerationRequest>& requests) {
  llm::EngineOptions engine{.device = parse_context_device_option(options.device),
                            .dense = dense_place(options),
                            .num_threads = options.num_threads,
                            .backend = options.backend,
                            .log = print_warning,
                            .kv_format = kv_format(options),
                            .page_size = options.page_size,
                            .num_pages = options.num_pages,
                            .tokens_per_step = options.tokens_per_step};
  if (!options.isa.empty()) engine.isa = parse_isa_option("--isa", options.isa);
  int64_t num_tokens = 0;
  for (const llm::GenerationRequest& request : requests)
    num_tokens += static_cast<int64_t>(request.prompt.size()) + options.max_tokens;
  // A step's buffers are as long as the longest step, which is not longer than all texts.
  engine.tokens_per_step = std::clamp<int64_t>(num_tokens, 1, options.tokens_per_step);
  if (engine.num_pages == 0) {  // room for all requests at once
    for (const llm::GenerationRequest& request : requests)
      engine.num_pages += (static_cast<int64_t>(request.prompt.size()) + options.max_tokens +
                           options.page_size - 1) /
                          options.page_size;
  }
  return engine;
}

void warn_past_context(const std::vector<llm::GenerationRequest>& requests,
                       const llm::ModelConfig& config) {
  int64_t longest = 0;
  for (const llm::GenerationRequest& request : requests)
    longest = std::max(longest, static_cast<int64_t>(request.prompt.size()) + request.max_tokens);
  if (longest > config.context_length + 1)  // the last token is not computed
    std::cerr << "rapt: a text may grow to " << longest << " tokens, past the "
              << config.context_length << " that the model was trained for\n";
}

double per_second(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

// A prompt's text as it comes: at once for the one whose turn it is to be printed, later for those
// behind it.
class Printer {
 public:
  Printer(const llm::Tokenizer& tokenizer, const std::vector<std::string>& prompts, bool quiet)
      : prompts_(prompts), quiet_(quiet), texts_(prompts.size()) {
    for (const std::string& prompt : prompts)
      decoders_.emplace_back(tokenizer, /*at_start=*/prompt.empty());
  }

  void token(size_t request, int32_t token) { add(request, decoders_[request].push(token)); }

  void finish() {
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (!quiet_) begin(i);
      add(i, decoders_[i].finish());
      if (quiet_) continue;
      if (i > 0) std::cout << texts_[i];
      if (!texts_[i].ends_with('\n')) std::cout << '\n';
    }
    std::cout.flush();
  }

  const std::string& text(size_t request) const { return texts_[request]; }

 private:
  // The line above the first text waits for that text: an error comes first, and alone.
  void begin(size_t request) {
    if (prompts_.size() == 1 || num_begun_ > request) return;
    num_begun_ = request + 1;
    std::cout << "== " << request + 1 << ": " << prompts_[request] << '\n';
  }
  void add(size_t request, const std::string& text) {
    texts_[request] += text;
    if (request > 0 || quiet_) return;
    begin(0);
    std::cout << text;
    if (!flush_output()) throw OutputLost();
  }

  const std::vector<std::string>& prompts_;
  bool quiet_;
  size_t num_begun_ = 0;  // texts whose line above is printed
  std::vector<llm::StreamDecoder> decoders_;
  std::vector<std::string> texts_;
};

Json figures(const llm::Engine& engine) {
  const llm::EngineStats& stats = engine.stats();
  const llm::SchedulerStats& scheduler = stats.scheduler;
  const rapt::DeviceInfo& device = engine.context().device();
  const double seconds = stats.prefill_seconds + stats.decode_seconds;
  const llm::DenseLayers& dense = engine.transformer().dense_layers();
  // Nothing waits for the attention where the layers behind it are on its stream.
  Json share = nullptr;
  if (!dense.is_on_device()) share = seconds > 0 ? stats.attention_seconds / seconds : 0;
  return {
      {"prefill_tokens", scheduler.prefill_tokens},
      {"prefill_tokens_per_s", per_second(scheduler.prefill_tokens, stats.prefill_seconds)},
      {"decode_tokens", scheduler.decode_tokens},
      {"decode_tokens_per_s", per_second(scheduler.decode_tokens, stats.decode_seconds)},
      {"attention_share", share},
      {"pages_used", scheduler.most_pages_used},
      {"pages_shared", scheduler.most_pages_shared},
      {"cached_tokens", scheduler.cached_tokens},
      {"preemptions", scheduler.num_preemptions},
      {"steps", stats.num_steps},
      {"seconds", seconds},
      {"weight_bytes", dense.weight_bytes()},
      {"cache_bytes_per_token", engine.transformer().cache_bytes_per_token()},
      {"threads", engine.context().num_threads()},
      {"isa", to_string(device.kind == rapt::DeviceKind::kCpu ? device.isa : rapt::host_cpu().isa)},
      {"device", device.name},
      {"dense", dense.is_on_device() ? "device" : "host"},
      {"kv_format", to_string(engine.transformer().attention().spec().cache_format())},
      {"backend", to_string(engine.transformer().attention().selection().backend)}};
}

void print_figures(const Json& f) {
  char attention[64] = "";
  if (!f["attention_share"].is_null())
    std::snprintf(attention, sizeof(attention), "attention %.1f %% of the time; ",
                  100 * f["attention_share"].get<double>());
  std::fprintf(stderr,
               "prefill %lld tokens, %.1f tokens/s; decode %lld tokens, %.1f tokens/s; %spages "
               "used %lld, shared %lld\n",
               f["prefill_tokens"].get<long long>(), f["prefill_tokens_per_s"].get<double>(),
               f["decode_tokens"].get<long long>(), f["decode_tokens_per_s"].get<double>(),
               attention, f["pages_used"].get<long long>(), f["pages_shared"].get<long long>());
}

void print_stats(const llm::Engine& engine, const Json& f) {
  for (const auto& [name, value] : f.items()) std::cerr << name << ": " << value.dump() << '\n';
  std::cerr << engine.transformer().attention().selection().explain() << '\n';
}

void run(const GenerateOptions& options) {
  const std::vector<std::string> prompts = read_prompts(options);
  const auto tokenizer = llm::load_tokenizer(tokenizer_path(options));
  llm::Model model =
      llm::load_model(options.model, {.num_threads = options.num_threads, .keep_format = true});
  if (tokenizer->vocab_size() != model.config.vocab_size)
    refuse("the tokenizer has " + std::to_string(tokenizer->vocab_size()) + " tokens, the model " +
           std::to_string(model.config.vocab_size) + ": they do not belong together");
  for (int32_t id : tokenizer->eos_ids()) model.config.eos_ids.push_back(id);

  std::vector<llm::GenerationRequest> requests;
  for (const std::string& prompt : prompts) {
    requests.push_back({.prompt = tokenizer->encode(prompt, tokenizer->adds_bos()),
                        .max_tokens = options.max_tokens,
                        .sampling = options.sampling});
    if (requests.back().prompt.empty())
      refuse("prompt " + std::to_string(requests.size()) +
             " is empty, and this model has no BOS token to begin from: give it a text");
  }
  // Before there is memory for them.
  for (const llm::GenerationRequest& request : requests) llm::check_request(request, model.config);
  warn_past_context(requests, model.config);
  llm::Engine engine(std::move(model), engine_options(options, requests));
  Printer printer(*tokenizer, prompts, options.json);
  const auto generations = engine.generate(
      requests, [&](size_t request, int32_t token) { printer.token(request, token); });
  printer.finish();

  const Json f = figures(engine);
  if (options.json) {
    Json texts = Json::array();
    for (size_t i = 0; i < prompts.size(); ++i)
      texts.push_back({{"prompt", prompts[i]},
                       {"prompt_tokens", requests[i].prompt},
                       {"text", printer.text(i)},
                       {"tokens", generations[i].tokens},
                       {"stopped", generations[i].stopped}});
    print_json({{"model", options.model}, {"generations", texts}, {"figures", f}});
  }
  if (options.stats) print_stats(engine, f);
  print_figures(f);
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("generate", "Generate text with a Llama-architecture model");
  auto o = std::make_shared<GenerateOptions>();
  command
      ->add_option("--model", o->model, "GGUF, llama2.c .bin or .safetensors file, or a directory")
      ->required();
  command->add_option("--tokenizer", o->tokenizer, "Where the model's file does not hold it");
  auto* prompt = command->add_option("--prompt", o->prompts, "A prompt; may be given several times")
                     ->allow_extra_args(false);
  command->add_option("--prompts", o->prompts_file, "A file with one prompt a line")
      ->excludes(prompt);
  command->add_option("--max-tokens", o->max_tokens, "Tokens to generate for each prompt")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  command->add_option("--temperature", o->sampling.temperature, "0 takes the likeliest token")
      ->capture_default_str();
  command->add_option("--top-k", o->sampling.top_k, "Draw from the k likeliest; 0 = off")
      ->capture_default_str()
      ->check(CLI::Range(0, INT32_MAX));
  command
      ->add_option("--top-p", o->sampling.top_p,
                   "Draw from the smallest set of this mass; 0 takes the likeliest token, 1 = off")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option("--min-p", o->sampling.min_p,
                   "Drop tokens below this share of the likeliest; 0 = off")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option("--seed", o->sampling.seed,
                   "Of the random numbers; every prompt draws the same ones")
      ->capture_default_str()
      ->check(refuse_past_uint64, "in [0 - 18446744073709551615]");
  command
      ->add_option("--device", o->device,
                   "Where the attention runs: cpu, cuda[:N] or emulated-smNN")
      ->capture_default_str();
  command
      ->add_option("--dense", o->dense,
                   "Where the other layers and their weights are: host, device, or auto: the GPU "
                   "of --device cuda, else the host")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "host", "device"}));
  command
      ->add_option("--kv-dtype", o->kv_dtype,
                   "Format of the KV cache: fp32, fp16, bf16; auto = fp32, on a GPU fp16")
      ->capture_default_str();
  command->add_option("--page-size", o->page_size, "Tokens per page")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--num-pages", o->num_pages, "Pages of the pool; 0 = room for all prompts")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}));
  command->add_option("--tokens-per-step", o->tokens_per_step, "Longer prompts go in chunks")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--threads", o->num_threads, "0 = the cores this process may use")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_option("--isa", o->isa, "A lower instruction set than the processor's");
  command->add_option("--backend", o->backend, "The attention's backend; no other is tried");
  command->add_flag("--stats", o->stats,
                    "Print more figures on stderr, and how the backend was chosen");
  command->add_flag("--json", o->json, "Print one JSON object instead of the text");
  command->footer(
      "Examples:\n"
      "  rapt generate --model models/stories260K/stories260K.bin --max-tokens 256 --temperature "
      "0\n"
      "  rapt generate --model model.gguf --prompt \"The capital of France is\" --top-p 0.9 --seed "
      "7\n"
      "  rapt generate --model model.gguf --prompts prompts.txt --kv-dtype bf16 --json\n"
      "  rapt generate --model models/stories260K/stories260K.bin --device emulated-sm80 "
      "--max-tokens 32\n"
      "  rapt generate --model model.gguf --device cuda --prompt \"Once upon a time\"\n"
      "The text goes to stdout, a line of figures to stderr. A text ends before its EOS token, or "
      "BOS, which begins another, or after --max-tokens.");
  command->callback([o] { run(*o); });
}

}  // namespace rapt_tool
