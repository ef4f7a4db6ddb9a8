// Asynchronous products of a warpgroup, four warps, for sm_90a. All its threads call together.
//
// A thread has 64 of the accumulators of d[64 x 128]: warp w of the group has rows 16 w to 16 w +
// 15, each eight columns in the fragment of multiply_16x8x16(). From multiply to wait nobody may
// touch d or the registers of a.
#pragma once
#include "ptx/math.cuh"

namespace rapt::device {

// PTX ISA, wgmma.fence: before the first product, and after registers of d or a were written.
DEVICE void warpgroup_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// PTX ISA, wgmma.commit_group: the products since the last one become a group.
DEVICE void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// PTX ISA, wgmma.wait_group: until at most kPending groups are in flight; d is what they write.
template <int kPending>
DEVICE void warpgroup_wait(float (&d)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The 64 accumulators as operands.
#define RAPT_D_LIST                                                                   \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "  \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "  \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define RAPT_D8(d, i)                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define RAPT_D_OPERANDS(d)                                                                      \
  RAPT_D8(d, 0), RAPT_D8(d, 8), RAPT_D8(d, 16), RAPT_D8(d, 24), RAPT_D8(d, 32), RAPT_D8(d, 40), \
      RAPT_D8(d, 48), RAPT_D8(d, 56)

// PTX ISA, wgmma.mma_async m64n128k16. a[64 x 16] and b[16 x 128] in shared memory, by descriptors,
// the depth contiguous in both.
#define RAPT_MULTIPLY_SHARED(Element, type)                                               \
  DEVICE void warpgroup_multiply(Element, float(&d)[64], u64 a, u64 b, bool accumulate) { \
    asm volatile(                                                                         \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                      \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " RAPT_D_LIST      \
        ", %64, %65, p, 1, 1, 0, 0;\n}"                                                   \
        : RAPT_D_OPERANDS(d)                                                              \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                             \
  }
// a[64 x 16] in registers, b[16 x 128] in shared memory with its columns contiguous.
#define RAPT_MULTIPLY_REGISTERS(Element, type)                                                    \
  DEVICE void warpgroup_multiply_registers(Element, float(&d)[64], const u32(&a)[4], u64 b,       \
                                           bool accumulate) {                                     \
    asm volatile(                                                                                 \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                              \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " RAPT_D_LIST              \
        ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"                                             \
        : RAPT_D_OPERANDS(d)                                                                      \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate))); \
  }
RAPT_MULTIPLY_SHARED(Bf16, "bf16")
RAPT_MULTIPLY_SHARED(F16, "f16")
RAPT_MULTIPLY_REGISTERS(Bf16, "bf16")
RAPT_MULTIPLY_REGISTERS(F16, "f16")
#undef RAPT_MULTIPLY_REGISTERS
#undef RAPT_MULTIPLY_SHARED
#undef RAPT_D_OPERANDS
#undef RAPT_D8
#undef RAPT_D_LIST

template <class Element>
DEVICE void warpgroup_multiply(float (&d)[64], u64 a, u64 b, bool accumulate) {
  warpgroup_multiply(Element{}, d, a, b, accumulate);
}
template <class Element>
DEVICE void warpgroup_multiply_registers(float (&d)[64], const u32 (&a)[4], u64 b,
                                         bool accumulate) {
  warpgroup_multiply_registers(Element{}, d, a, b, accumulate);
}

// PTX ISA, setmaxnreg: the registers of each thread of the warpgroup's warps.
template <int kRegisters>
DEVICE void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
DEVICE void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace rapt::device
