// The dense layers on the host, on the pool's threads, wherever the attention is.
#pragma once

#include <vector>

#include "llm/engine/dense_layers.hpp"
#include "llm/engine/exchange_buffer.hpp"
#include "llm/engine/kernels.hpp"
#include "llm/engine/linear.hpp"
#include "llm/engine/thread_pool.hpp"
#include "llm/model/model.hpp"

namespace llm {

class HostLayers : public DenseLayers {
 public:
  // Takes the weights out of `model`. Context and pool must outlive it. `dtype` is the attention's
  // type, max_tokens the most of a step.
  HostLayers(Model model, rapt::Context& context, ThreadPool& pool, rapt::DType dtype,
             int64_t max_tokens);

  int64_t weight_bytes() const override;
  std::vector<std::span<const std::byte>> weight_runs() const override { return weights_.runs(); }

  void begin(const Step& step) override;
  AttentionTensors before_attention(int64_t block) override;
  void to_attention() override;
  void from_attention() override;
  void after_attention(int64_t block) override;
  rapt::TensorView logits() override;

 private:
  struct Block {
    std::vector<float> attention_norm, ffn_norm;  // [dim]
    Linear qkv;                                   // rows: all query heads, key heads, value heads
    Linear attention_out;
    Linear gate_up;  // rows: gate, up
    Linear down;
  };

  bool is_narrow() const { return dtype_ != rapt::DType::kFloat32; }
  void apply(const Linear& linear, const Linear::MakeRow& make_row, Activations& out,
             bool accumulate);
  Linear::MakeRow normed(const std::vector<float>& weight) const;
  AttentionTensors attention_tensors();
  void copy_attended(int64_t token, float* row) const;

  ModelConfig config_;
  ThreadPool& pool_;
  const Kernels& kernels_;
  rapt::DType dtype_;

  WeightMemory weights_;
  Linear embedding_;
  Linear output_;  // empty if the embedding is the output matrix
  std::vector<float> final_norm_;
  std::vector<Block> blocks_;

  // Of the step at hand.
  const Step* step_ = nullptr;
  ExchangeBuffer slots_;                // int64 [T]
  std::vector<float> cosines_, sines_;  // [T, head_dim / 2]
  Activations x_, qkv_, attended_, gate_up_, logits_;
  // 16-bit caches: what the attention reads and writes, [T, heads, head_dim].
  ExchangeBuffer qkv16_, attended16_;
};

}  // namespace llm
