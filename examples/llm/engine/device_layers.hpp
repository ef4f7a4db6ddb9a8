// The dense layers on the attention's own GPU: weights and activations in its memory, products by
// cuBLASLt, the rest by kernels of llm/cuda. A step is put on the device's default stream, and
// nothing waits for it before logits().
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "llm/cuda/cublas_lt.hpp"
#include "llm/cuda/driver.hpp"
#include "llm/cuda/elementwise.hpp"
#include "llm/engine/dense_layers.hpp"
#include "llm/engine/thread_pool.hpp"
#include "llm/model/model.hpp"

namespace llm {

class DeviceLayers : public DenseLayers {
 public:
  // As HostLayers', for a context on a CUDA device; dtype is fp16 or bf16. Weights become fp32 and
  // are multiplied as such: what differs from the host is the order of sums. Throws
  // rapt::Error(kMissingLibrary) where the driver, NVRTC or cuBLASLt is not there, before any
  // weight is copied.
  DeviceLayers(Model model, rapt::Context& context, ThreadPool& pool, rapt::DType dtype,
               int64_t max_tokens);
  ~DeviceLayers() override;

  bool is_on_device() const override { return true; }
  int64_t weight_bytes() const override;
  std::vector<std::span<const std::byte>> weight_runs() const override { return {}; }

  void begin(const Step& step) override;
  AttentionTensors before_attention(int64_t block) override;
  void after_attention(int64_t block) override;
  rapt::TensorView logits() override;

 private:
  // fp32 [rows, cols]
  struct Weights {
    int64_t rows = 0, cols = 0;
    rapt::DeviceBuffer buffer;

    const float* data() const { return static_cast<const float*>(buffer.data()); }
  };
  struct Block {
    Weights attention_norm, ffn_norm;  // [1, dim]
    Weights qkv;                       // rows: all query heads, key heads, value heads
    Weights attention_out;
    Weights gate_up;  // rows: gate, up
    Weights down;
  };
  // A step's numbers, in device memory that one copy fills.
  struct Inputs {
    const int64_t* slots;          // [T]
    const float *cosines, *sines;  // [T, head_dim / 2]
    const int32_t* tokens;         // [T]
    const int32_t* logit_rows;     // [R]
  };

  void upload_model(Model& model);
  // The parts' rows, one part's after another's.
  Weights upload(std::initializer_list<const Matrix*> parts);
  float* floats(int64_t count);
  void multiply(const Weights& weights, const float* x, float* out, bool accumulate = false);
  void norm(const Weights& weights, float* out);

  ModelConfig config_;
  rapt::Context& context_;
  ThreadPool& pool_;
  rapt::DType dtype_;
  cuda::Context gpu_;
  cuda::Elementwise kernels_;
  std::unique_ptr<cuda::CublasLt> products_;  // ends within the context

  Weights embedding_;
  Weights output_;  // empty if the embedding is the output matrix
  Weights final_norm_;
  std::vector<Block> blocks_;
  std::vector<float> staged_weights_;

  // Of the step at hand.
  const Step* step_ = nullptr;
  cuda::PinnedBuffer staged_inputs_, host_logits_;
  rapt::DeviceBuffer input_buffer_, logit_buffer_;
  Inputs inputs_{};
  std::vector<rapt::DeviceBuffer> activation_buffers_;
  // fp32: [T, dim], [T, dim], [T, heads of q, k and v, head_dim], [T, Hq, head_dim],
  // [T, 2, hidden_dim], [T, hidden_dim].
  float *x_, *normed_, *qkv_, *attended_, *gate_up_, *hidden_;
  // What the attention reads and writes: [T, heads of q, k and v, head_dim] and [T, Hq, head_dim].
  rapt::DeviceBuffer qkv16_, attended16_;
};

}  // namespace llm
