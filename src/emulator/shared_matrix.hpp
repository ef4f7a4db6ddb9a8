// A matrix in shared memory as the 64-bit descriptor of a wgmma operand tells.
#pragma once

#include <cstdint>

#include "emulator/tensor_map.hpp"

namespace rapt::emulator {

// PTX ISA, Matrix Descriptor. Elements are (mn, k), where mn is a row of a or a column of b; one of
// them is contiguous ("major"). "Leading" and "stride" are the distances of the canonical layouts.
struct SharedMatrix {
  uint32_t start, leading, stride;  // bytes
  Swizzle swizzle;
  bool mn_major;

  static SharedMatrix decode(uint64_t descriptor, bool mn_major) {
    constexpr Swizzle kSwizzles[] = {Swizzle::kNone, Swizzle::k128, Swizzle::k64, Swizzle::k32};
    const auto field = [&](int bit) {
      return static_cast<uint32_t>(descriptor >> bit & 0x3FFF) << 4;
    };
    return {field(0), field(16), field(32), kSwizzles[descriptor >> 62], mn_major};
  }
  static bool has_base_offset(uint64_t descriptor) { return descriptor >> 49 & 7; }

  // Address of the 16 bytes that begin at element (mn, k).
  uint32_t chunk(uint32_t mn, uint32_t k) const {
    const uint32_t line_bytes = 16u << static_cast<int>(swizzle), line_elems = line_bytes / 2;
    uint32_t address = start;
    if (swizzle == Swizzle::kNone)
      address += mn / 8 * stride + k / 8 * leading + (mn_major ? k : mn) % 8 * 16;
    else if (mn_major)
      address +=
          mn / line_elems * leading + k / 8 * stride + k % 8 * line_bytes + mn % line_elems * 2;
    else
      address += mn / 8 * stride + mn % 8 * line_bytes + k * 2;
    return swizzle_address(address, swizzle);
  }
};

}  // namespace rapt::emulator
