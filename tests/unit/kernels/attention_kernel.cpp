// Of variant RAPT_VARIANT.
#include "attention_kernel.hpp"

#include "prefill/attention_sm80.cuh"

namespace rapt::emulator {

template <int kIndex>
void run_variant(Memory& memory, const Options& options, bool fp16, uint32_t num_kv_heads,
                 uint32_t num_works, const device::AttentionParams& params) {
  constexpr device::AttentionVariant kVariant = kAttentionVariants[kIndex];
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
template void run_variant<RAPT_VARIANT>(Memory&, const Options&, bool, uint32_t, uint32_t,
                                        const device::AttentionParams&);

}  // namespace rapt::emulator
