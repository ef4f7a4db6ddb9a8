// Who a thread is, and how threads of a block and lanes of a warp meet. Blocks are one-dimensional.
#pragma once
#include "ptx/types.cuh"

namespace rapt::device {

constexpr u32 kWarpLanes = 32;
constexpr u32 kAllLanes = 0xFFFFFFFF;

// PTX ISA, Special Registers.
DEVICE u32 thread_index() {
  return threadIdx.x;
}
DEVICE u32 block_index_x() {
  return blockIdx.x;
}
DEVICE u32 block_index_y() {
  return blockIdx.y;
}
DEVICE u32 block_index_z() {
  return blockIdx.z;
}
DEVICE u32 grid_size_x() {
  return gridDim.x;
}
DEVICE u32 lane_index() {
  return threadIdx.x % kWarpLanes;
}
DEVICE u32 warp_index() {
  return threadIdx.x / kWarpLanes;
}

// `x`, of which the compiler knows nothing more: what follows from it is computed here, and not
// kept in registers from where it was computed before.
DEVICE u32 anew(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

// PTX ISA, bar.sync: all threads of the block; orders their accesses to shared and global memory.
DEVICE void sync_block() {
  __syncthreads();
}
// The `threads` of whole warps that name barrier `id`, 1 to 15; sync_block() is barrier 0.
DEVICE void sync_named(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// PTX ISA, bar.arrive: counts among the `threads` without waiting.
DEVICE void arrive_named(u32 id, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// PTX ISA, bar.warp.sync: all lanes of the warp; orders their accesses as sync_block() does.
DEVICE void sync_warp() {
  __syncwarp();
}

// PTX ISA, griddepcontrol.wait, from SM90 on: until the kernel before on the stream has ended,
// beside which this one may have begun (programmatic dependent launch), and what it wrote is there.
DEVICE void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// PTX ISA, shfl.sync: the value that lane ^ bits, or `lane`, brings. Orders no memory access.
DEVICE float shuffle_xor(float value, int bits) {
  return __shfl_xor_sync(kAllLanes, value, bits);
}
DEVICE u32 shuffle(u32 value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
// PTX ISA, vote.sync: whether the predicate holds for any lane.
DEVICE bool any_lane(bool predicate) {
  return __any_sync(kAllLanes, predicate);
}

// The block's dynamic shared memory as the one struct that describes it.
template <class T>
DEVICE T* shared_base() {
  extern __shared__ __align__(1024) u8 dynamic_shared[];
  return reinterpret_cast<T*>(dynamic_shared);
}
// PTX ISA, cvta: the address that instructions on shared memory take.
DEVICE u32 shared_address(const void* p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}

}  // namespace rapt::device
