#include "llm/cuda/elementwise.hpp"

#include <algorithm>
#include <iterator>

#include "llm/cuda/device_text.hpp"
#include "llm/cuda/nvrtc.hpp"

namespace llm::cuda {
namespace {

constexpr int32_t kThreads = 128, kMostOfRow = 512, kWarp = 32;

int64_t blocks_for(int64_t num_elems) {
  return (num_elems + kThreads - 1) / kThreads;
}

// The kernel's parameters are of exactly these types.
template <typename... Args>
void launch(const Module& module, FunctionHandle function, int64_t num_blocks, int32_t num_threads,
            int32_t shared_bytes, const Args&... args) {
  if (num_blocks == 0) return;
  const void* const arguments[] = {static_cast<const void*>(&args)...};
  module.launch(function, num_blocks, num_threads, shared_bytes, arguments);
}

}  // namespace

Elementwise::Elementwise(const Context& context, int32_t compute_capability)
    : module_(context, compile(embedded_headers()[0].text, compute_capability)),
      embed_(module_.function("llm_embed")),
      rms_norm_(module_.function("llm_rms_norm")),
      rotate_(module_.function("llm_rotate")),
      widen_(module_.function("llm_widen")),
      swiglu_(module_.function("llm_swiglu")) {}

void Elementwise::embed(float* out, const float* table, const int32_t* tokens, int64_t num_tokens,
                        int64_t dim) const {
  const int64_t num_elems = num_tokens * dim;
  launch(module_, embed_, blocks_for(num_elems), kThreads, 0, out, table, tokens, num_elems,
         static_cast<int32_t>(dim), kThreads);
}

void Elementwise::rms_norm(float* out, const float* x, const float* weight, const int32_t* rows,
                           int64_t num_rows, int64_t dim, float epsilon) const {
  const int64_t warps = std::min<int64_t>((dim + kWarp - 1) / kWarp, kMostOfRow / kWarp);
  launch(module_, rms_norm_, num_rows, static_cast<int32_t>(warps * kWarp),
         static_cast<int32_t>(warps * static_cast<int64_t>(sizeof(float))), out, x, weight, rows,
         static_cast<int32_t>(dim), epsilon, static_cast<int32_t>(warps * kWarp));
}

void Elementwise::rotate(const Rotation& r) const {
  const int64_t num_pairs = r.num_tokens * r.num_heads * r.head_dim / 2;
  launch(module_, rotate_, blocks_for(num_pairs), kThreads, 0, r.heads, r.qkv, r.cosines, r.sines,
         num_pairs, static_cast<int32_t>(r.num_heads), static_cast<int32_t>(r.num_rotated),
         static_cast<int32_t>(r.head_dim), r.is_halves, r.dtype == rapt::DType::kBFloat16,
         kThreads);
}

void Elementwise::widen(float* out, const uint16_t* from, int64_t num_elems,
                        rapt::DType dtype) const {
  launch(module_, widen_, blocks_for(num_elems), kThreads, 0, out, from, num_elems,
         dtype == rapt::DType::kBFloat16, kThreads);
}

void Elementwise::swiglu(float* out, const float* gate_up, int64_t num_tokens,
                         int64_t hidden) const {
  const int64_t num_elems = num_tokens * hidden;
  launch(module_, swiglu_, blocks_for(num_elems), kThreads, 0, out, gate_up, num_elems,
         static_cast<int32_t>(hidden), kThreads);
}

}  // namespace llm::cuda
