// The wrappers of src/kernels/ptx/threads.cuh on the emulator.
#pragma once
#include "emulator/instructions.hpp"
#include "ptx/types.cuh"

namespace rapt::device {

constexpr u32 kWarpLanes = 32;
constexpr u32 kAllLanes = 0xFFFFFFFF;

DEVICE u32 thread_index() {
  return emulator::indices().thread;
}
DEVICE u32 block_index_x() {
  return emulator::indices().block_x;
}
DEVICE u32 block_index_y() {
  return emulator::indices().block_y;
}
DEVICE u32 block_index_z() {
  return emulator::indices().block_z;
}
DEVICE u32 grid_size_x() {
  return emulator::indices().grid_x;
}
DEVICE u32 lane_index() {
  return thread_index() % kWarpLanes;
}
DEVICE u32 warp_index() {
  return thread_index() / kWarpLanes;
}

DEVICE u32 anew(u32 x) {
  return x;
}

DEVICE void sync_block(Location at = Location::current()) {
  emulator::sync_block(at);
}
DEVICE void sync_named(u32 id, u32 threads, Location at = Location::current()) {
  emulator::sync_named(id, threads, at);
}
DEVICE void arrive_named(u32 id, u32 threads, Location at = Location::current()) {
  emulator::arrive_named(id, threads, at);
}
DEVICE void sync_warp(Location at = Location::current()) {
  emulator::sync_warp(at);
}

DEVICE void wait_for_previous_kernel(Location at = Location::current()) {
  emulator::wait_for_previous_kernel(at);
}

DEVICE float shuffle_xor(float value, int bits, Location at = Location::current()) {
  const u32 moved = emulator::shuffle(__builtin_bit_cast(u32, value), lane_index() ^ bits, at);
  return __builtin_bit_cast(float, moved);
}
DEVICE u32 shuffle(u32 value, int lane, Location at = Location::current()) {
  return emulator::shuffle(value, lane, at);
}
DEVICE bool any_lane(bool predicate, Location at = Location::current()) {
  return emulator::any_lane(predicate, at);
}

template <class T>
DEVICE T* shared_base() {
  return static_cast<T*>(emulator::shared_base());
}
DEVICE u32 shared_address(const void* p) {
  return emulator::shared_address(p);
}

}  // namespace rapt::device
