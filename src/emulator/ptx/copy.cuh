// The wrappers of src/kernels/ptx/copy.cuh on the emulator.
#pragma once
#include "emulator/instructions.hpp"
#include "ptx/types.cuh"

namespace rapt::device {

void copy_async_16(u32 shared, const void* global, bool reads) = delete;  // false is no sign
DEVICE void copy_async_16(u32 shared, const void* global, int sign,
                          Location at = Location::current()) {
  emulator::copy_async_16(shared, global, sign >= 0, at);
}
DEVICE void copy_async_commit(Location at = Location::current()) {
  emulator::copy_async_commit(at);
}
template <int kPending>
DEVICE void copy_async_wait(Location at = Location::current()) {
  emulator::copy_async_wait(kPending, at);
}

DEVICE Quad load_shared_16(u32 shared, Location at = Location::current()) {
  Quad q;
  emulator::load_shared(shared, &q, sizeof q, at);
  return q;
}
DEVICE u32 load_shared_4(u32 shared, Location at = Location::current()) {
  u32 value;
  emulator::load_shared(shared, &value, sizeof value, at);
  return value;
}
DEVICE void store_shared_16(u32 shared, Quad q, Location at = Location::current()) {
  emulator::store_shared(shared, &q, sizeof q, at);
}
DEVICE void store_shared_4(u32 shared, u32 value, Location at = Location::current()) {
  emulator::store_shared(shared, &value, sizeof value, at);
}

template <class T>
DEVICE T load_global(const void* p, bool read_only, Location at) {
  T value;
  emulator::load_global(p, &value, sizeof value, read_only, at);
  return value;
}
DEVICE Quad load_global_16(const void* p, Location at = Location::current()) {
  return load_global<Quad>(p, true, at);
}
DEVICE u16 load_global_2(const void* p, Location at = Location::current()) {
  return load_global<u16>(p, true, at);
}
DEVICE int load_global_i32(const void* p, Location at = Location::current()) {
  return load_global<int>(p, true, at);
}
DEVICE float load_global_f32(const void* p, Location at = Location::current()) {
  return load_global<float>(p, true, at);
}
DEVICE Quad load_coherent_16(const void* p, Location at = Location::current()) {
  return load_global<Quad>(p, false, at);
}
DEVICE u16 load_coherent_2(const void* p, Location at = Location::current()) {
  return load_global<u16>(p, false, at);
}
DEVICE float load_coherent_f32(const void* p, Location at = Location::current()) {
  return load_global<float>(p, false, at);
}

DEVICE void store_global_16(void* p, Quad q, Location at = Location::current()) {
  emulator::store_global(p, &q, sizeof q, at);
}
DEVICE void store_global_2(void* p, u16 value, Location at = Location::current()) {
  emulator::store_global(p, &value, sizeof value, at);
}
DEVICE void store_global_8(void* p, u32 low, u32 high, Location at = Location::current()) {
  const u32 words[2] = {low, high};
  emulator::store_global(p, words, sizeof words, at);
}
DEVICE void store_global_4(void* p, u32 value, Location at = Location::current()) {
  emulator::store_global(p, &value, sizeof value, at);
}
DEVICE void store_global_f32(void* p, float value, Location at = Location::current()) {
  emulator::store_global(p, &value, sizeof value, at);
}

}  // namespace rapt::device
