// Text generation over Rapt: prompts in, tokens out.
//
//   llm::Engine engine(llm::load_model(path), {.num_pages = 64});
//   auto generations = engine.generate({{.prompt = ids, .max_tokens = 100}});
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/engine/scheduler.hpp"
#include "llm/engine/thread_pool.hpp"
#include "llm/engine/transformer.hpp"
#include "llm/model/model.hpp"
#include "rapt/rapt.hpp"

namespace llm {

struct EngineOptions {
  // Where the attention runs, and the cache lies: as in rapt::ContextOptions.
  std::string device = "cpu";
  // All else but sampling. kHost with a GPU: every layer's queries, keys and values go there, and
  // its outputs come back.
  DensePlace dense = DensePlace::kAuto;
  int32_t num_threads = 0;            // 0 = the cores this process may use
  std::optional<rapt::CpuIsa> isa{};  // unset: the processor's; with device "cpu" only
  std::string backend{};              // "" = Rapt's choice
  std::function<void(rapt::LogLevel, std::string_view)> log{};  // as in rapt::ContextOptions
  rapt::KvFormat kv_format = rapt::KvFormat::kAuto;             // as in TransformerOptions
  int32_t page_size = 16;
  int64_t num_pages = 0;
  int64_t tokens_per_step = 512;
};

struct GenerationRequest {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;  // may lead past the model's context, where texts get worse
  // The draw of generated token i has offset sampling.offset + i, so a request's text depends on
  // nothing but the request.
  rapt::SamplingParams sampling{};
};

struct Generation {
  std::vector<int32_t> tokens;  // generated, without the end token
  bool stopped = false;         // by an end token or BOS, not by length
};

struct EngineStats {
  SchedulerStats scheduler;
  int64_t num_steps = 0;
  // A step that both prefills and decodes counts for either by its share of the tokens.
  double prefill_seconds = 0, decode_seconds = 0;
  double forward_seconds = 0, attention_seconds = 0;  // as in ForwardTime
};

// Throws if no engine for this model could run the request: a prompt longer than the context, say.
void check_request(const GenerationRequest& request, const ModelConfig& config);

class Engine {
 public:
  Engine(Model model, const EngineOptions& options);

  const Transformer& transformer() const { return transformer_; }
  const rapt::Context& context() const { return context_; }

  // Runs the requests together. on_token(request, token) is called as tokens come, which for each
  // request is in order. Results don't depend on the other requests.
  std::vector<Generation> generate(std::span<const GenerationRequest> requests,
                                   const std::function<void(size_t, int32_t)>& on_token = {});
  const EngineStats& stats() const { return stats_; }

 private:
  void sample(const rapt::TensorView& logits, std::span<const GenerationRequest> requests,
              const Scheduler& scheduler, std::vector<int32_t>& tokens);

  EngineOptions options_;
  ThreadPool pool_;
  rapt::Context context_;
  Transformer transformer_;
  EngineStats stats_;
};

}  // namespace llm
