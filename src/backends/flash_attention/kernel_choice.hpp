// Which attention kernels of generation 2 serve a spec on a device: a pure host function.
#pragma once

#include <array>

#include "kernels/abi/attention.hpp"
#include "rapt/device.hpp"
#include "rapt/spec.hpp"

namespace rapt::flash_attention {

struct KernelChoice {
  device::AttentionVariant variant;
  int32_t blocks_per_sm;  // that an SM holds at once
};

// Tiles of 16 and 32 rows, for decoding, of 64, for several tokens at a time, and of as many as a
// prompt's may have. `spec` is one that selection accepts; the device is of compute capability 8.0
// or later.
constexpr size_t kNumTiles = 4;
std::array<KernelChoice, kNumTiles> choose_kernels(const AttentionSpec& spec,
                                                   const DeviceInfo& device);

}  // namespace rapt::flash_attention
