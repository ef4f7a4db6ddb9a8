// How elements meet in a product: the one thing that differs between fp32 arithmetic and bf16 dot
// products. Packed rows hold `Element`s; a 32-bit unit of them, kStep elements, is what one lane of
// a multiply takes.
#pragma once

#include "backends/cpu/tile-inl.hpp"

namespace rapt::cpu {
namespace {

// fp32 multiply-add, for every element type: rows are widened while they are packed.
struct FloatProducts {
  using Tile = RegisterTile<FloatProducts>;
  using Element = float;
  using Operand = Vec;
  static constexpr int kStep = 1;

  static Operand load_operand(const Element* p) { return load(p); }
  static Operand broadcast_unit(const Element* p) { return broadcast(p); }
  static Vec multiply(Vec sum, Operand a, Operand b) { return fma(a, b, sum); }

  // kWidth units of a row, as bits.
  template <typename T>
  static Vec load_units(const T* row, int unit, Mask mask) {
    return load(row + unit, mask);
  }
  // kWidth dims of kStep keys, a unit a dim.
  template <typename T>
  static Vec load_values(const T* const* rows, Mask mask) {
    return load(rows[0], mask);
  }
  static Vec exp2(float, Vec x) { return exp2_accurate(x); }
  static Vec exp2(Half, Vec x) { return exp2_accurate(x); }
  static Vec exp2(BFloat, Vec x) { return exp2_fast(x); }
  static void store_probabilities(Element* p, const Vec (&x)[kStep]) { store(p, x[0]); }
};

}  // namespace
}  // namespace rapt::cpu
