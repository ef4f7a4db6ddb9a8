#include "attention_kernel.hpp"

#include <utility>

#include "prefill/attention_sm80.cuh"

namespace rapt::emulator {
namespace {

template <device::AttentionVariant kVariant>
void run_variant(Memory& memory, const Options& options, bool fp16, uint32_t num_kv_heads,
                 uint32_t num_works, const device::AttentionParams& params) {
  const Launch shape{{num_kv_heads, num_works},
                     static_cast<uint32_t>(kVariant.num_threads()),
                     sizeof(device::AttentionShared<kVariant>)};
  if (fp16)
    launch(memory, shape, options,
           [&] { device::AttentionBlock<kVariant, device::F16>(params).run(); });
  else
    launch(memory, shape, options,
           [&] { device::AttentionBlock<kVariant, device::Bf16>(params).run(); });
}

template <int... kIndex>
void run_one(Memory& memory, const Options& options, int variant, bool fp16, uint32_t num_kv_heads,
             uint32_t num_works, const device::AttentionParams& params,
             std::integer_sequence<int, kIndex...>) {
  ((variant == kIndex ? run_variant<kAttentionVariants[kIndex]>(memory, options, fp16, num_kv_heads,
                                                                num_works, params)
                      : void()),
   ...);
}

}  // namespace

void run_attention(Memory& memory, const Options& options, int variant, bool fp16,
                   uint32_t num_kv_heads, uint32_t num_works,
                   const device::AttentionParams& params) {
  run_one(memory, options, variant, fp16, num_kv_heads, num_works, params,
          std::make_integer_sequence<int, std::size(kAttentionVariants)>());
}

}  // namespace rapt::emulator
