// The attention kernels as tests see them.
#pragma once

#include <span>

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

void run_attention(Memory& memory, const Options& options, int variant, bool fp16,
                   uint32_t num_kv_heads, uint32_t num_works,
                   const device::AttentionParams& params);

}  // namespace rapt::emulator
