// The wrappers of src/kernels/ptx/atomic.cuh on the emulator.
#pragma once
#include "emulator/instructions.hpp"
#include "ptx/types.cuh"

namespace rapt::device {

DEVICE u32 atomic_add(u32* p, u32 value, Location at = Location::current()) {
  return emulator::atomic_add(p, value, at);
}
DEVICE void fence_device(Location at = Location::current()) {
  emulator::fence_device(at);
}

}  // namespace rapt::device
