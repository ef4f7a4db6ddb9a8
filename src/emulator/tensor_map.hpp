// Tensor maps: what cuTensorMapEncodeTiled makes, in a layout of our own that fits the same 128
// bytes.
#pragma once

#include <cstdint>
#include <span>

#include "emulator/memory.hpp"

namespace rapt::emulator {

// 16-byte chunks of lines of this many bytes are permuted. In the driver's order.
enum class Swizzle : uint8_t { kNone, k32, k64, k128 };

struct EncodedMap {
  static constexpr uint32_t kMark = 0x50414D54;
  static constexpr int kMaxRank = 5;

  char* base;
  uint64_t strides[kMaxRank];  // bytes; [0] is an element's
  uint32_t dims[kMaxRank];     // elements
  uint16_t box[kMaxRank];      // elements
  uint8_t rank, element_bytes;
  Swizzle swizzle;
  uint32_t mark;

  uint32_t row_bytes() const { return uint32_t{box[0]} * element_bytes; }
  uint32_t box_bytes() const {
    uint32_t bytes = element_bytes;
    for (int i = 0; i < rank; ++i) bytes *= box[i];
    return bytes;
  }
};
static_assert(sizeof(EncodedMap) <= 128);

// Where swizzling puts the chunk that would be at this address: its number in the line is changed
// by the number of its 128 bytes in the pattern.
inline uint32_t swizzle_address(uint32_t address, Swizzle swizzle) {
  constexpr uint32_t kChunks[] = {0, 1, 3, 7};
  return address ^ (address >> 7 & kChunks[static_cast<int>(swizzle)]) << 4;
}

struct TensorShape {
  const void* base;
  int element_bytes;
  std::span<const uint64_t> dims;     // elements, innermost first
  std::span<const uint64_t> strides;  // bytes, of all dimensions but the innermost
  std::span<const uint32_t> box;      // elements
  Swizzle swizzle;
};

// Throws rapt::Error for what the driver would refuse, and unless all that the tensor spans lies in
// one allocation.
EncodedMap encode_tensor_map(const Memory& memory, const TensorShape& shape);

}  // namespace rapt::emulator
