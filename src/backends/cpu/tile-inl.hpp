// The register tile: kTileRows rows times up to kTileVecs vectors of columns stay in registers over
// the whole inner dimension, so that each load of an operand serves several products.
#pragma once

#include "backends/cpu/products-inl.hpp"

namespace rapt::cpu {
namespace {

// 24 accumulators + 4 + 1 operands of 32 registers; 12 + 2 + 1 of 16; without FMA a product takes
// one more.
constexpr int kTileRows = kWidth == 4 ? 4 : 6;
constexpr int kTileVecs = kWidth == 16 ? 4 : 2;
constexpr int kPanel = kTileVecs * kWidth;  // columns

// c[kTileRows][kVecs * kWidth] = a b, or += a b.
//   a: rows of `steps` units, a_stride elements apart;  b: [steps][kVecs * kWidth] units, packed.
// Not inlined: in a large caller the strides would be kept on the stack.
template <typename Products, int kVecs, bool kAccumulate>
[[gnu::noinline]] void multiply_tile(const typename Products::Element* a, int a_stride,
                                     const typename Products::Element* b, int steps, float* c,
                                     int c_stride) {
  using Operand = typename Products::Operand;
  Vec sum[kTileRows][kVecs];
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; m++)
#pragma GCC unroll 8
    for (int n = 0; n < kVecs; n++)
      sum[m][n] = kAccumulate ? load(c + m * c_stride + n * kWidth) : zero();
  for (int step = 0; step < steps; step++) {
    Operand columns[kVecs];
#pragma GCC unroll 8
    for (int n = 0; n < kVecs; n++)
      columns[n] = Products::load_operand(b + n * kWidth * Products::kStep);
#pragma GCC unroll 8
    for (int m = 0; m < kTileRows; m++) {
      const Operand row = Products::broadcast_unit(a + m * a_stride);
#pragma GCC unroll 8
      for (int n = 0; n < kVecs; n++) sum[m][n] = Products::multiply(sum[m][n], row, columns[n]);
    }
    a += Products::kStep;
    b += kVecs * kWidth * Products::kStep;
  }
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; m++)
#pragma GCC unroll 8
    for (int n = 0; n < kVecs; n++) store(c + m * c_stride + n * kWidth, sum[m][n]);
}

// c += a b for a panel of any number of vectors.
template <typename Products>
inline void accumulate_tile(int vecs, const typename Products::Element* a, int a_stride,
                            const typename Products::Element* b, int steps, float* c,
                            int c_stride) {
  if (vecs == kTileVecs)
    return multiply_tile<Products, kTileVecs, true>(a, a_stride, b, steps, c, c_stride);
  if constexpr (kTileVecs > 2) {
    if (vecs == 3) return multiply_tile<Products, 3, true>(a, a_stride, b, steps, c, c_stride);
    if (vecs == 2) return multiply_tile<Products, 2, true>(a, a_stride, b, steps, c, c_stride);
  }
  multiply_tile<Products, 1, true>(a, a_stride, b, steps, c, c_stride);
}

}  // namespace
}  // namespace rapt::cpu
