// Loads, stores and asynchronous copies. Addresses are multiples of the bytes that an instruction
// moves.
#pragma once
#include "ptx/types.cuh"

namespace rapt::device {

// PTX ISA, cp.async.cg: 16 bytes from global to shared memory past L1, or 16 zeros if `sign` is
// negative (ignore-src); global memory is not touched then, and the address need only be a multiple
// of 16. They may be read after copy_async_wait() by this thread, by others after a barrier that
// follows it.
DEVICE void copy_async_16(u32 shared, const void* global, int sign) {
  asm volatile(
      "{\n.reg .pred ignores;\nsetp.lt.s32 ignores, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, ignores;\n}" ::"r"(shared),
      "l"(__cvta_generic_to_global(global)), "r"(sign)
      : "memory");
}
// PTX ISA, cp.async.commit_group: the copies since the last one become a group.
DEVICE void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// PTX ISA, cp.async.wait_group: until at most the kPending youngest groups of this thread are in
// flight.
template <int kPending>
DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// PTX ISA, ld.shared and st.shared.
DEVICE Quad load_shared_16(u32 shared) {
  Quad q;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
               : "r"(shared)
               : "memory");
  return q;
}
DEVICE u32 load_shared_4(u32 shared) {
  u32 value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(shared) : "memory");
  return value;
}
DEVICE void store_shared_16(u32 shared, Quad q) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(q.x), "r"(q.y),
               "r"(q.z), "r"(q.w)
               : "memory");
}
DEVICE void store_shared_4(u32 shared, u32 value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared), "r"(value) : "memory");
}

// PTX ISA, ld.global.nc: what no thread writes while the kernel runs.
DEVICE Quad load_global_16(const void* p) {
  Quad q;
  asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
      : "l"(__cvta_generic_to_global(p)));
  return q;
}
DEVICE u16 load_global_2(const void* p) {
  u16 value;
  asm("ld.global.nc.u16 %0, [%1];" : "=h"(value) : "l"(__cvta_generic_to_global(p)));
  return value;
}
DEVICE int load_global_i32(const void* p) {
  int value;
  asm("ld.global.nc.s32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(p)));
  return value;
}
DEVICE float load_global_f32(const void* p) {
  float value;
  asm("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(__cvta_generic_to_global(p)));
  return value;
}

// PTX ISA, ld.global: what other blocks wrote, once an atomic and fences order it (atomic.cuh).
DEVICE Quad load_coherent_16(const void* p) {
  Quad q;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return q;
}
DEVICE u16 load_coherent_2(const void* p) {
  u16 value;
  asm volatile("ld.global.u16 %0, [%1];"
               : "=h"(value)
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return value;
}
DEVICE float load_coherent_f32(const void* p) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];"
               : "=f"(value)
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return value;
}

// PTX ISA, st.global.
DEVICE void store_global_16(void* p, Quad q) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
               "r"(q.x), "r"(q.y), "r"(q.z), "r"(q.w)
               : "memory");
}
DEVICE void store_global_2(void* p, u16 value) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "h"(value) : "memory");
}
DEVICE void store_global_8(void* p, u32 low, u32 high) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "r"(low),
               "r"(high)
               : "memory");
}
DEVICE void store_global_4(void* p, u32 value) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(value) : "memory");
}
DEVICE void store_global_f32(void* p, float value) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "f"(value) : "memory");
}

}  // namespace rapt::device
