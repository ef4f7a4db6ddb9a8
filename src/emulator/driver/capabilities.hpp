// Compute capabilities of the emulated devices, by ordinal: all that Rapt has kernels for.
#pragma once

#include <cstdint>

namespace rapt::emulator {

inline constexpr int32_t kComputeCapabilities[] = {75, 80, 86, 89, 90, 100, 103, 120, 121};

}  // namespace rapt::emulator
