// The register tile: a few rows times a few vectors of columns stay in registers over the whole
// inner dimension, so that each load of an operand serves several products.
#pragma once

namespace rapt::cpu {
namespace {

// Products into tiles of kRows x kColumns, with these shapes in memory:
//   a  rows of units, a_stride elements apart (units: see products-inl.hpp)
//   b  panels of [units][kPacked], b_panel elements apart
//   c  rows of floats, c_stride apart
template <typename Products>
struct RegisterTile {
  // 24 accumulators + 4 + 1 operands of 32 registers; 12 + 2 + 1 of 16; without FMA a product takes
  // one more.
  static constexpr int kRows = kWidth == 4 ? 4 : 6;
  static constexpr int kVecs = kWidth == 16 ? 4 : 2;
  static constexpr int kColumns = kVecs * kWidth;
  static constexpr int kPacked = kColumns;  // a tile is one panel wide
  static constexpr int kUnits = 1;          // units come in multiples of
  static constexpr int kRowBlock = 96;      // rows whose Q, S, P and O stay in L2 together

  template <typename Element>
  static void multiply(const Element* a, int a_stride, const Element* b, int64_t /*b_panel*/,
                       int units, float* c, int c_stride) {
    run<kVecs, false>(a, a_stride, b, units, c, c_stride);
  }

  // c += a b, `columns` wide: a multiple of kWidth.
  template <typename Element>
  static void accumulate(int columns, const Element* a, int a_stride, const Element* b,
                         int64_t /*b_panel*/, int units, float* c, int c_stride) {
    if (columns == kColumns) return run<kVecs, true>(a, a_stride, b, units, c, c_stride);
    if constexpr (kVecs > 2) {
      if (columns == 3 * kWidth) return run<3, true>(a, a_stride, b, units, c, c_stride);
      if (columns == 2 * kWidth) return run<2, true>(a, a_stride, b, units, c, c_stride);
    }
    run<1, true>(a, a_stride, b, units, c, c_stride);
  }

 private:
  // Not inlined: in a large caller the strides would be kept on the stack.
  template <int kHere, bool kAccumulate, typename Element>
  [[gnu::noinline]] static void run(const Element* a, int a_stride, const Element* b, int units,
                                    float* c, int c_stride) {
    using Operand = typename Products::Operand;
    Vec sum[kRows][kHere];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; m++)
#pragma GCC unroll 8
      for (int n = 0; n < kHere; n++)
        sum[m][n] = kAccumulate ? load(c + m * c_stride + n * kWidth) : zero();
    for (int unit = 0; unit < units; unit++) {
      Operand columns[kHere];
#pragma GCC unroll 8
      for (int n = 0; n < kHere; n++)
        columns[n] = Products::load_operand(b + n * kWidth * Products::kStep);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; m++) {
        const Operand row = Products::broadcast_unit(a + m * a_stride);
#pragma GCC unroll 8
        for (int n = 0; n < kHere; n++) sum[m][n] = Products::multiply(sum[m][n], row, columns[n]);
      }
      a += Products::kStep;
      b += kHere * kWidth * Products::kStep;
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; m++)
#pragma GCC unroll 8
      for (int n = 0; n < kHere; n++) store(c + m * c_stride + n * kWidth, sum[m][n]);
  }
};

}  // namespace
}  // namespace rapt::cpu
