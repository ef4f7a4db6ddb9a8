// All of a model but its attention: embedding, projections, feed-forward blocks, logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "llm/engine/step.hpp"
#include "rapt/rapt.hpp"

namespace llm {

// Where the dense layers are. kAuto: where the attention is, but for emulated devices, which have
// no cuBLASLt: the host reaches their memory and keeps the layers.
enum class DensePlace : uint8_t { kAuto, kHost, kDevice };

// A block's attention, on its device: q [T, Hq, D], k and v [T, Hkv, D] and out [T, Hq, D] in its
// type, slot_mapping int64 [T].
struct AttentionTensors {
  rapt::TensorView q, k, v, out, slot_mapping;
};

// Holds the weights, and a step's activations on their way through the layers:
//   begin(step)
//   of each block: before_attention(block), to_attention(), the attention, from_attention(),
//     after_attention(block)
//   logits()
class DenseLayers {
 public:
  virtual ~DenseLayers() = default;

  // Not on the host, but on the attention's GPU.
  virtual bool is_on_device() const { return false; }
  // Bytes of weights that a decode step reads.
  virtual int64_t weight_bytes() const = 0;
  // Where the host has the matrices, in the order of their use; the embedding, if it is not the
  // output matrix, among them.
  virtual std::vector<std::span<const std::byte>> weight_runs() const = 0;

  // The embedding of step.tokens. The step must stay until logits().
  virtual void begin(const Step& step) = 0;
  // Queries and keys are rotated. The tensors are the next block's, too.
  virtual AttentionTensors before_attention(int64_t block) = 0;
  // Where the weights are not on the attention's device: q, k and v go there; out comes back.
  virtual void to_attention() {}
  virtual void from_attention() {}
  virtual void after_attention(int64_t block) = 0;
  // fp32 [R, vocab_size] on the host: those of step.logit_rows, valid until the next call.
  virtual rapt::TensorView logits() = 0;
};

}  // namespace llm
