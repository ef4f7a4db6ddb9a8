// The wrappers of src/kernels/ptx/barrier.cuh on the emulator.
#pragma once
#include "emulator/instructions.hpp"
#include "ptx/types.cuh"

namespace rapt::device {

DEVICE void barrier_init(u32 barrier, u32 arrivals, Location at = Location::current()) {
  emulator::barrier_init(barrier, arrivals, at);
}
DEVICE void fence_barrier_init(Location at = Location::current()) {
  emulator::fence_async_shared(at);
}
DEVICE void barrier_arrive(u32 barrier, Location at = Location::current()) {
  emulator::barrier_arrive(barrier, 0, at);
}
DEVICE void barrier_expect(u32 barrier, u32 bytes, Location at = Location::current()) {
  emulator::barrier_arrive(barrier, bytes, at);
}
DEVICE void barrier_wait(u32 barrier, u32 parity, Location at = Location::current()) {
  emulator::barrier_wait(barrier, parity, at);
}
DEVICE void fence_async_shared(Location at = Location::current()) {
  emulator::fence_async_shared(at);
}

}  // namespace rapt::device
