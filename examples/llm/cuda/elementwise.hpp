// What stands between the products of a Llama's dense layers, on a GPU: the kernels of
// elementwise.cuh. All addresses are of the device's memory, work goes on its default stream, and
// the context must be current.
#pragma once

#include <cstdint>

#include "llm/cuda/driver.hpp"
#include "rapt/dtype.hpp"

namespace llm::cuda {

class Elementwise {
 public:
  // Compiles them. The context must outlive it.
  Elementwise(const Context& context, int32_t compute_capability);

  // out [T, dim] = rows of table [vocab, dim].
  void embed(float* out, const float* table, const int32_t* tokens, int64_t num_tokens,
             int64_t dim) const;
  // out [R, dim] = x / sqrt(mean(x^2) + epsilon) * weight, of the rows of x; null: of the first R.
  void rms_norm(float* out, const float* x, const float* weight, const int32_t* rows,
                int64_t num_rows, int64_t dim, float epsilon) const;

  struct Rotation {
    uint16_t* heads;       // [T, num_heads, head_dim] of dtype
    const float* qkv;      // the same, fp32
    const float* cosines;  // [T, head_dim / 2]
    const float* sines;    // the same
    int64_t num_tokens;
    int64_t num_heads;
    int64_t num_rotated;  // of the heads, the first; the others are narrowed only
    int64_t head_dim;
    bool is_halves;     // pairs are (i, i + head_dim / 2), else neighbours
    rapt::DType dtype;  // fp16 or bf16
  };
  void rotate(const Rotation& rotation) const;
  void widen(float* out, const uint16_t* from, int64_t num_elems, rapt::DType dtype) const;
  // out [T, hidden] = silu(gate) * up of gate_up [T, 2, hidden].
  void swiglu(float* out, const float* gate_up, int64_t num_tokens, int64_t hidden) const;

 private:
  Module module_;
  FunctionHandle embed_, rms_norm_, rotate_, widen_, swiglu_;
};

}  // namespace llm::cuda
