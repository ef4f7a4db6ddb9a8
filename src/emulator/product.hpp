// Products of 16 rows, as mma.sync and a warp's part of wgmma have them.
#pragma once

#include <cstdint>

#include "core/float16.hpp"
#include "emulator/instructions.hpp"

namespace rapt::emulator {

constexpr int kProductRows = 16, kProductDepth = 16, kMaxProductColumns = 256;

// d[16][columns] += a[16][16] b[16][columns], all without gaps; columns is a multiple of 8.
void multiply_add(float* d, const float (*a)[kProductDepth], const float* b, int columns);

inline float to_float(ElementType type, uint32_t bits) {
  const auto half = static_cast<uint16_t>(bits);
  return type == ElementType::kBf16 ? bfloat16_to_float(half) : float16_to_float(half);
}

// Calls visit(i, row, column, half) for the eight elements of a that a lane has in four registers,
// where register i has the element in that half: PTX ISA, the A fragment of m16n8k16 and of a warp
// in wgmma.
template <class Visit>
void for_a_fragment(int lane, Visit&& visit) {
  for (int i = 0; i < 4; ++i)
    for (int half = 0; half < 2; ++half)
      visit(i, lane / 4 + i % 2 * 8, i / 2 * 8 + lane % 4 * 2 + half, half);
}

// Calls visit(i, row, column) for the accumulators that a lane has of d[16][columns], four for each
// eight columns: PTX ISA, the D fragment of m16n8k16 and of a warp in wgmma.
template <class Visit>
void for_d_fragment(int lane, int columns, Visit&& visit) {
  for (int i = 0; i < columns / 2; ++i)
    visit(i, lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
}

}  // namespace rapt::emulator
