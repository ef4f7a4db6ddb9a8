// The wrappers of src/kernels/ptx/math.cuh on the emulator, and the functions that CUDA has built
// in.
#pragma once
#include "core/float16.hpp"
#include "ptx/types.cuh"

namespace rapt::device {

// 2^x within 2^-23 or so, results below the normal numbers flushed as ex2.approx.ftz does:
// x = n + f, |f| <= 1/2, and a polynomial in f. Written so that compilers vectorise it.
DEVICE float exp2_fast(float x) {
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it leaves no bits of a fraction
  const float shifted = x + kRound, f = x - (shifted - kRound);
  float p = 1.5403530e-4f;
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.f;
  const u32 bits = __builtin_bit_cast(u32, p) + (__builtin_bit_cast(u32, shifted) << 23);
  const float y = __builtin_bit_cast(float, bits);
  return x != x ? x : x < -126.f ? 0.f : x >= 128.f ? __builtin_inff() : y;
}
DEVICE float log2_fast(float x) {
  return __builtin_log2f(x);
}
DEVICE float tanh_fast(float x) {
  return __builtin_tanhf(x);
}

DEVICE u32 float_bits(float x) {
  return __builtin_bit_cast(u32, x);
}
DEVICE float bits_float(u32 x) {
  return __builtin_bit_cast(float, x);
}
DEVICE float infinity() {
  return __builtin_inff();
}

struct Bf16 {
  DEVICE u32 pack(float low, float high) {
    return float_to_bfloat16(low) | static_cast<u32>(float_to_bfloat16(high)) << 16;
  }
  DEVICE float low(u32 pair) { return bits_float(pair << 16); }
  DEVICE float high(u32 pair) { return bits_float(pair & 0xFFFF0000); }
};
struct F16 {
  DEVICE u32 pack(float low, float high) {
    return float_to_float16(low) | static_cast<u32>(float_to_float16(high)) << 16;
  }
  DEVICE float low(u32 pair) { return float16_to_float(static_cast<u16>(pair)); }
  DEVICE float high(u32 pair) { return float16_to_float(static_cast<u16>(pair >> 16)); }
};

template <class Element>
DEVICE float unpack_low(u32 pair) {
  return Element::low(pair);
}
template <class Element>
DEVICE float unpack_high(u32 pair) {
  return Element::high(pair);
}

DEVICE int min(int a, int b) {
  return a < b ? a : b;
}
DEVICE u32 min(u32 a, u32 b) {
  return a < b ? a : b;
}
DEVICE i64 min(i64 a, i64 b) {
  return a < b ? a : b;
}
DEVICE int max(int a, int b) {
  return a > b ? a : b;
}
DEVICE u32 max(u32 a, u32 b) {
  return a > b ? a : b;
}
DEVICE i64 max(i64 a, i64 b) {
  return a > b ? a : b;
}
// Of a number and a NaN, the number.
DEVICE float fminf(float a, float b) {
  return a < b || b != b ? a : b;
}
DEVICE float fmaxf(float a, float b) {
  return a > b || b != b ? a : b;
}
DEVICE float min(float a, float b) {
  return fminf(a, b);
}
DEVICE float max(float a, float b) {
  return fmaxf(a, b);
}
DEVICE float fmaf(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
DEVICE float fabsf(float a) {
  return __builtin_fabsf(a);
}

}  // namespace rapt::device
