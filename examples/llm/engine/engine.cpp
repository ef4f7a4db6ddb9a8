#include "llm/engine/engine.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "llm/model/failure.hpp"

namespace llm {
namespace {

rapt::ContextOptions context_options(const EngineOptions& options, ThreadPool& pool) {
  return {.device = options.device,
          .num_threads = pool.num_threads(),
          .parallel_for =
              [&pool](int32_t num_tasks, const std::function<void(int32_t)>& task) {
                pool.run(num_tasks, task);
              },
          .isa = options.isa,
          .log = options.log};
}

// BOS begins the next text, so it ends this one: llama2.c's models were trained so.
bool ends_text(const ModelConfig& config, int32_t token) {
  return token == config.bos_id || std::ranges::find(config.eos_ids, token) != config.eos_ids.end();
}

}  // namespace

Engine::Engine(Model model, const EngineOptions& options)
    : options_(options),
      pool_(options.num_threads),
      context_(context_options(options, pool_)),
      transformer_(std::move(model), context_, pool_,
                   {.kv_format = options.kv_format,
                    .page_size = options.page_size,
                    .num_pages = options.num_pages,
                    .max_tokens = options.tokens_per_step,
                    .backend = options.backend,
                    .dense = options.dense}) {}

void check_request(const GenerationRequest& request, const ModelConfig& config) {
  const auto length = static_cast<int64_t>(request.prompt.size());
  check_supported(length <= config.context_length, "a prompt has ", length,
                  " tokens, but the model's context is ", config.context_length, ": shorten it");
  check_supported(request.max_tokens >= 0, "max_tokens is ", request.max_tokens,
                  ": must be at least 0");
  for (int32_t token : request.prompt)
    check_supported(token >= 0 && token < config.vocab_size, "a prompt has token ", token,
                    ", but the model's vocabulary is ", config.vocab_size,
                    ": is this the model's tokenizer?");
}

void Engine::sample(const rapt::TensorView& logits, std::span<const GenerationRequest> requests,
                    const Scheduler& scheduler, std::vector<int32_t>& tokens) {
  const std::span<const int64_t> ids = scheduler.logit_requests();
  std::vector<rapt::SamplingParams> params;
  for (int64_t id : ids) {
    const GenerationRequest& request = requests[static_cast<size_t>(id)];
    params.push_back(request.sampling);
    params.back().offset += scheduler.text(id).size() - request.prompt.size();
  }
  std::vector<rapt::SampleStatus> statuses(ids.size());
  tokens.resize(ids.size());
  rapt::sample(context_, logits, params, tokens, statuses);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (statuses[i] != rapt::SampleStatus::kOk)
      fail(rapt::ErrorCode::kIo, "the logits of request ", ids[i], " after ",
           scheduler.text(ids[i]).size(),
           " tokens are not numbers: the model's weights are damaged, or too large for its types");
  }
}

std::vector<Generation> Engine::generate(std::span<const GenerationRequest> requests,
                                         const std::function<void(size_t, int32_t)>& on_token) {
  const ModelConfig& config = transformer_.config();
  Scheduler scheduler({.num_pages = options_.num_pages,
                       .page_size = options_.page_size,
                       .tokens_per_step = options_.tokens_per_step});
  for (const GenerationRequest& request : requests) {
    check_request(request, config);
    scheduler.add(request.prompt, static_cast<int64_t>(request.prompt.size()) + request.max_tokens);
  }

  std::vector<Generation> generations(requests.size());
  std::vector<int32_t> tokens;
  Step step;
  stats_ = {};
  const ForwardTime before = transformer_.time();
  for (;;) {
    const auto start = std::chrono::steady_clock::now();
    const int64_t prefilled = scheduler.stats().prefill_tokens;
    if (!scheduler.next(step)) break;
    const rapt::TensorView logits = transformer_.forward(step);
    sample(logits, requests, scheduler, tokens);
    const std::vector<int64_t> ids(scheduler.logit_requests().begin(),
                                   scheduler.logit_requests().end());
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool stop = ends_text(config, tokens[i]);
      scheduler.push(ids[i], tokens[i], stop);
      Generation& generation = generations[static_cast<size_t>(ids[i])];
      generation.stopped = stop;
      if (stop) continue;
      generation.tokens.push_back(tokens[i]);
      if (on_token) on_token(static_cast<size_t>(ids[i]), tokens[i]);
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double prefill_share = static_cast<double>(scheduler.stats().prefill_tokens - prefilled) /
                                 static_cast<double>(step.num_tokens());
    stats_.prefill_seconds += seconds * prefill_share;
    stats_.decode_seconds += seconds * (1 - prefill_share);
    stats_.num_steps++;
  }
  stats_.scheduler = scheduler.stats();
  stats_.forward_seconds = transformer_.time().total - before.total;
  stats_.attention_seconds = transformer_.time().attention - before.attention;
  return generations;
}

}  // namespace llm
