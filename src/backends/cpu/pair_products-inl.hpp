// bf16 elements multiplied two at a time by the processor's bf16 dot product.
#pragma once

#include "backends/cpu/products-inl.hpp"

namespace rapt::cpu {
namespace {

struct PairProducts {
  using Tile = RegisterTile<PairProducts>;
  using Element = BFloat;
  using Operand = Pairs;
  static constexpr int kStep = 2;

  static Operand load_operand(const Element* p) { return load_pairs(p); }
  static Operand broadcast_unit(const Element* p) { return broadcast_pair(p); }
  static Vec multiply(Vec sum, Operand a, Operand b) { return dot(sum, a, b); }

  static Vec load_units(const BFloat* row, int unit, Mask mask) {
    return load(reinterpret_cast<const float*>(row + 2 * unit), mask);
  }
  static Vec load_values(const BFloat* const* rows, Mask mask) {
    return interleave(rows[0], rows[1], mask);
  }
  static Vec exp2(BFloat, Vec x) { return exp2_fast(x); }
  static void store_probabilities(Element* p, const Vec (&x)[kStep]) {
    store_narrowed(p, x[0], x[1]);
  }
};

}  // namespace
}  // namespace rapt::cpu
