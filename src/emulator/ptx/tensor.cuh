// The wrappers of src/kernels/ptx/tensor.cuh on the emulator.
#pragma once
#include "emulator/instructions.hpp"
#include "ptx/types.cuh"

namespace rapt::device {

// Holds what emulator::encode_tensor_map() makes.
struct alignas(64) TensorMap {
  u8 bytes[128];
};

constexpr u64 kEvictFirst = 0x12F0000000000000, kEvictLast = 0x14F0000000000000;

DEVICE void load_tensor(u32 shared, const TensorMap& map, u32 barrier, const int (&coordinates)[5],
                        u64, Location at = Location::current()) {
  emulator::load_tensor(shared, &map, barrier, coordinates, at);
}
DEVICE void store_tensor(const TensorMap& map, u32 shared, const int (&coordinates)[5],
                         Location at = Location::current()) {
  emulator::store_tensor(&map, shared, coordinates, at);
}
DEVICE void store_tensor_commit(Location at = Location::current()) {
  emulator::store_tensor_commit(at);
}
template <int kPending>
DEVICE void store_tensor_wait_read(Location at = Location::current()) {
  emulator::store_tensor_wait(kPending, true, at);
}
template <int kPending>
DEVICE void store_tensor_wait(Location at = Location::current()) {
  emulator::store_tensor_wait(kPending, false, at);
}
DEVICE void prefetch_map(const TensorMap&) {}

}  // namespace rapt::device
