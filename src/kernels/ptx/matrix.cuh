// Matrix products of a warp. All 32 lanes call together.
#pragma once
#include "ptx/math.cuh"

namespace rapt::device {

// PTX ISA, ldmatrix: four 8 x 8 matrices of 16-bit elements. Lane 8 i + r gives the address of row
// r of matrix i, 16 bytes; then r[i] holds elements (lane / 4, lane % 4 * 2 + {0, 1}) of matrix i.
DEVICE void load_matrices(u32 (&r)[4], u32 shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
// The same of transposed matrices: r[i] holds elements (lane % 4 * 2 + {0, 1}, lane / 4).
DEVICE void load_matrices_transposed(u32 (&r)[4], u32 shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

// PTX ISA, stmatrix, sm_90 and later: the reverse of load_matrices().
DEVICE void store_matrices(u32 shared, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// PTX ISA, Matrix Fragments for mma.m16n8k16: d[16 x 8] += a[16 x 16] b[16 x 8]. A register holds
// two neighbours, of a row of a or of a column of b. With g = lane / 4 and t = lane % 4 * 2:
//   a[i] starts at (row, column) = (g, t), (g + 8, t), (g, t + 8), (g + 8, t + 8)
//   b[i] starts at (t, g), (t + 8, g)
//   d[i] is at (g, t), (g, t + 1), (g + 8, t), (g + 8, t + 1)
DEVICE void multiply_16x8x16(Bf16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void multiply_16x8x16(F16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <class Element>
DEVICE void multiply_16x8x16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  multiply_16x8x16(Element{}, d, a, b);
}

// kColumns products with the same a, one after the other.
template <class Element, int kColumns>
DEVICE void multiply_row(float (&d)[kColumns][4], const u32 (&a)[4], const u32 (&b)[kColumns][2]) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) multiply_16x8x16<Element>(d[i], a, b[i]);
}

}  // namespace rapt::device
