// The wrappers of src/kernels/ptx/warpgroup.cuh on the emulator.
#pragma once
#include "emulator/instructions.hpp"
#include "ptx/matrix.cuh"

namespace rapt::device {

DEVICE void warpgroup_fence(Location at = Location::current()) {
  emulator::warpgroup_fence(at);
}
DEVICE void warpgroup_commit(Location at = Location::current()) {
  emulator::warpgroup_commit(at);
}
template <int kPending>
DEVICE void warpgroup_wait(float (&)[64], Location at = Location::current()) {
  emulator::warpgroup_wait(kPending, at);
}

template <class Element>
DEVICE void warpgroup_multiply(float (&d)[64], u64 a, u64 b, bool accumulate,
                               Location at = Location::current()) {
  emulator::warpgroup_multiply(
      {element_type(Element{}), 128, accumulate, false, false, false, a, b}, d, nullptr, at);
}
template <class Element>
DEVICE void warpgroup_multiply_registers(float (&d)[64], const u32 (&a)[4], u64 b, bool accumulate,
                                         Location at = Location::current()) {
  emulator::warpgroup_multiply({element_type(Element{}), 128, accumulate, true, false, true, 0, b},
                               d, a, at);
}

template <int kRegisters>
DEVICE void grow_registers(Location at = Location::current()) {
  emulator::set_max_registers(kRegisters, at);
}
template <int kRegisters>
DEVICE void shrink_registers(Location at = Location::current()) {
  emulator::set_max_registers(kRegisters, at);
}

}  // namespace rapt::device
