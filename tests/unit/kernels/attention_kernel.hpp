// The attention kernels as tests see them.
#pragma once

#include <iterator>
#include <utility>

#include "emulator/launch.hpp"
#include "kernels/abi/attention.hpp"

namespace rapt::emulator {

// The variants that are compiled for tests, small tiles of each kind. head dims, group, page size,
// tile rows and keys, stages, warps; scores in advance, softcap, ALiBi, mask, sinks.
inline constexpr device::AttentionVariant kAttentionVariants[] = {
    {32, 32, 4, 16, 32, 32, 2, 2, false, false, false, false, false},
    {40, 64, 1, 0, 64, 128, 1, 4, false, false, false, false, false},
    {72, 40, 3, 1, 32, 16, 2, 2, false, false, false, false, true},
    {64, 128, 2, 7, 64, 32, 2, 2, true, true, true, false, true},
    {32, 64, 5, 48, 32, 32, 1, 2, false, false, false, true, false},
};

// Each in an object of its own (attention_kernel.cpp).
template <int kIndex>
void run_variant(Memory& memory, const Options& options, bool fp16, uint32_t num_kv_heads,
                 uint32_t num_works, const device::AttentionParams& params);

inline void run_attention(Memory& memory, const Options& options, int variant, bool fp16,
                          uint32_t num_kv_heads, uint32_t num_works,
                          const device::AttentionParams& params) {
  const auto run_one = [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    ((variant == kIndex
          ? run_variant<kIndex>(memory, options, fp16, num_kv_heads, num_works, params)
          : void()),
     ...);
  };
  run_one(std::make_integer_sequence<int, std::size(kAttentionVariants)>());
}

}  // namespace rapt::emulator
