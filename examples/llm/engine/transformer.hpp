// The Llama architecture: Rapt's paged attention between a model's dense layers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llm/engine/dense_layers.hpp"
#include "llm/engine/step.hpp"
#include "llm/engine/thread_pool.hpp"
#include "llm/model/model.hpp"
#include "rapt/rapt.hpp"

namespace llm {

struct TransformerOptions {
  // kAuto: fp32 on the CPU, which the activations are; fp16 on a GPU, whose kernels have no fp32,
  // since it is closer to it than bf16.
  rapt::KvFormat kv_format = rapt::KvFormat::kAuto;
  int32_t page_size = 16;
  int64_t num_pages = 0;
  int64_t max_tokens = 0;  // of a step: T
  std::string backend;     // "" = Rapt's choice
  DensePlace dense = DensePlace::kAuto;
};

// What every layer of the model asks of Rapt. The attention computes in the type of its cache where
// that is a plain one, so that nothing is converted twice; for quantised formats queries are bf16.
rapt::AttentionSpec attention_spec(const ModelConfig& config, rapt::KvFormat kv_format,
                                   int32_t page_size);

// Seconds spent in forward(), and the part of them in Rapt's plan, write_kv and run, with the
// copies to and from a GPU. Where the dense layers are on the GPU the calls only put work on its
// stream: their time is not the work's.
struct ForwardTime {
  double total = 0;
  double attention = 0;
};

class Transformer {
 public:
  // Takes the weights out of `model`. Context and pool must outlive it. Throws as rapt::Attention
  // does if no backend takes the attention, and as the dense layers do (device_layers.hpp).
  Transformer(Model model, rapt::Context& context, ThreadPool& pool,
              const TransformerOptions& options);

  const ModelConfig& config() const { return config_; }
  const rapt::Attention& attention() const { return attention_; }
  const DenseLayers& dense_layers() const { return *dense_; }
  // Bytes of cache per token of context.
  int64_t cache_bytes_per_token() const;

  // fp32 [R, vocab_size]: the logits of step.logit_rows, valid until the next call.
  rapt::TensorView forward(const Step& step);
  const ForwardTime& time() const { return time_; }

 private:
  void plan(const Step& step);
  void attend(const AttentionTensors& tensors, const rapt::KvCacheView& cache);

  ModelConfig config_;
  rapt::Context& context_;
  rapt::Attention attention_;
  int64_t num_pages_;
  rapt::DeviceBuffer cache_;
  std::vector<rapt::KvCacheView> block_caches_;
  std::unique_ptr<DenseLayers> dense_;

  // Of the step at hand.
  std::unique_ptr<rapt::Plan> plan_;
  rapt::DeviceBuffer workspace_;
  ForwardTime time_;
};

}  // namespace llm
