// The wrappers of src/kernels/ptx/matrix.cuh on the emulator.
#pragma once
#include "emulator/instructions.hpp"
#include "ptx/math.cuh"

namespace rapt::device {

DEVICE void load_matrices(u32 (&r)[4], u32 shared, Location at = Location::current()) {
  emulator::load_matrices(r, shared, false, at);
}
DEVICE void load_matrices_transposed(u32 (&r)[4], u32 shared, Location at = Location::current()) {
  emulator::load_matrices(r, shared, true, at);
}

DEVICE void store_matrices(u32 shared, const u32 (&r)[4], Location at = Location::current()) {
  emulator::store_matrices(shared, r, at);
}

constexpr emulator::ElementType element_type(Bf16) {
  return emulator::ElementType::kBf16;
}
constexpr emulator::ElementType element_type(F16) {
  return emulator::ElementType::kF16;
}

template <class Element>
DEVICE void multiply_16x8x16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2],
                             Location at = Location::current()) {
  emulator::multiply(element_type(Element{}), &d, a, &b, 1, at);
}
template <class Element, int kColumns>
DEVICE void multiply_row(float (&d)[kColumns][4], const u32 (&a)[4], const u32 (&b)[kColumns][2],
                         Location at = Location::current()) {
  emulator::multiply(element_type(Element{}), d, a, b, kColumns, at);
}

}  // namespace rapt::device
