// The Llama architecture over Rapt's paged attention: embedding, blocks, logits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llm/engine/exchange_buffer.hpp"
#include "llm/engine/kernels.hpp"
#include "llm/engine/linear.hpp"
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
};

// What every layer of the model asks of Rapt. The attention computes in the type of its cache where
// that is a plain one, so that nothing is converted twice; for quantised formats queries are bf16.
rapt::AttentionSpec attention_spec(const ModelConfig& config, rapt::KvFormat kv_format,
                                   int32_t page_size);

// Seconds spent in forward(), and the part of them in Rapt's plan, write_kv and run, with the
// copies to and from a GPU.
struct ForwardTime {
  double total = 0;
  double attention = 0;
};

class Transformer {
 public:
  // Takes the weights out of `model`. Context and pool must outlive it. Throws as rapt::Attention
  // does if no backend takes the attention.
  Transformer(Model model, rapt::Context& context, ThreadPool& pool,
              const TransformerOptions& options);

  const ModelConfig& config() const { return config_; }
  const rapt::Attention& attention() const { return attention_; }
  // Bytes of weights that a decode step reads, and of cache per token of context.
  int64_t weight_bytes() const;
  int64_t cache_bytes_per_token() const;
  // Where the matrices lie, in the order of their use; the embedding, if it is not the output
  // matrix, among them.
  std::vector<std::span<const std::byte>> weight_runs() const { return weights_.runs(); }

  // fp32 [R, vocab_size]: the logits of step.logit_rows, valid until the next call.
  rapt::TensorView forward(const Step& step);
  const ForwardTime& time() const { return time_; }

 private:
  struct Block {
    std::vector<float> attention_norm, ffn_norm;  // [dim]
    Linear qkv;                                   // rows: all query heads, key heads, value heads
    Linear attention_out;
    Linear gate_up;  // rows: gate, up
    Linear down;
    rapt::KvCacheView cache;
  };

  // Views of the q, k and v that the attention reads, and of the out it writes.
  struct Heads {
    rapt::TensorView q, k, v, out;
  };

  void find_rotations(const Step& step);
  Linear::MakeRow normed(const std::vector<float>& weight) const;
  Heads prepare_heads(int64_t num_tokens);
  void attend(int64_t num_tokens, const Block& block, const Heads& heads);
  void copy_attended(int64_t token, float* row) const;
  void run_block(const Step& step, Block& block);

  ModelConfig config_;
  rapt::Context& context_;
  ThreadPool& pool_;
  const Kernels& kernels_;
  rapt::Attention attention_;
  int64_t num_pages_;

  WeightMemory weights_;
  Linear embedding_;
  Linear output_;  // empty if the embedding is the output matrix
  std::vector<float> final_norm_;
  std::vector<Block> blocks_;
  rapt::DeviceBuffer cache_;

  // Of the step at hand.
  std::unique_ptr<rapt::Plan> plan_;
  rapt::DeviceBuffer workspace_;
  ExchangeBuffer slots_;                // int64 [T]
  std::vector<float> cosines_, sines_;  // [T, head_dim / 2]
  Activations x_, qkv_, attended_, gate_up_, logits_;
  // 16-bit caches: what the attention reads and writes, [T, heads, head_dim].
  ExchangeBuffer qkv16_, attended16_;
  ForwardTime time_;
};

}  // namespace llm
