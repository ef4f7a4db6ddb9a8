// Bulk copies of boxes of a tensor that a map of the driver describes (TMA). One thread issues
// them. For sm_90 and later.
#pragma once
#include "ptx/types.cuh"

namespace rapt::device {

// What cuTensorMapEncodeTiled() makes; a kernel parameter with GRID_CONSTANT. Maps have five
// dimensions, the last ones of size 1 where the tensor has fewer.
struct alignas(64) TensorMap {
  u8 bytes[128];
};

// Cache policies, as createpolicy makes them for whole accesses.
constexpr u64 kEvictFirst = 0x12F0000000000000, kEvictLast = 0x14F0000000000000;

// PTX ISA, cp.async.bulk.tensor: the box at these coordinates, innermost first, to shared memory,
// with zeros where the tensor ends; its bytes count on the mbarrier.
DEVICE void load_tensor(u32 shared, const TensorMap& map, u32 barrier, const int (&at)[5],
                        u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]),
      "l"(policy)
      : "memory");
}
// The box from shared memory; nothing is written where the tensor ends.
DEVICE void store_tensor(const TensorMap& map, u32 shared, const int (&at)[5]) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], "
      "[%6];" ::"l"(&map),
      "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(shared)
      : "memory");
}
// PTX ISA, cp.async.bulk.commit_group and wait_group: until at most kPending groups of this
// thread's stores have yet to read shared memory, or to write.
DEVICE void store_tensor_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int kPending>
DEVICE void store_tensor_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
template <int kPending>
DEVICE void store_tensor_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}
// PTX ISA, prefetch.tensormap.
DEVICE void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace rapt::device
