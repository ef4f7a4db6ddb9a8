// Arithmetic that has an instruction of its own, and the two 16-bit formats. Device text also has
// CUDA's min, max, fminf, fmaxf, fmaf and fabsf.
#pragma once
#include "ptx/types.cuh"

namespace rapt::device {

// PTX ISA, ex2.approx.ftz, lg2.approx.ftz, tanh.approx: within 2^-22, 2^-22 and 2^-11, relative.
DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float tanh_fast(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

DEVICE u32 float_bits(float x) {
  return __float_as_uint(x);
}
DEVICE float bits_float(u32 x) {
  return __uint_as_float(x);
}
DEVICE float infinity() {
  return bits_float(0x7F800000);
}

// Two elements share a register; the one with the lower index has the lower half.
// PTX ISA, cvt.rn.bf16x2.f32 and cvt.rn.f16x2.f32: to nearest, ties to even.
struct Bf16 {
  DEVICE u32 pack(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  DEVICE float low(u32 pair) { return bits_float(pair << 16); }
  DEVICE float high(u32 pair) { return bits_float(pair & 0xFFFF0000); }
};
struct F16 {
  DEVICE u32 pack(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  DEVICE float low(u32 pair) { return widen(static_cast<u16>(pair)); }
  DEVICE float high(u32 pair) { return widen(static_cast<u16>(pair >> 16)); }

 private:
  DEVICE float widen(u16 half) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
  }
};

template <class Element>
DEVICE float unpack_low(u32 pair) {
  return Element::low(pair);
}
template <class Element>
DEVICE float unpack_high(u32 pair) {
  return Element::high(pair);
}

}  // namespace rapt::device
