// Vectors of 4 floats in the compiler's own vector types: any processor. Here is said what the
// names mean; the other simd headers define the same ones, wider. A kernel file includes exactly
// one of them, then the -inl headers, all in unnamed namespaces, so that nothing of it is shared
// with files built for other processors.
#pragma once

#include "backends/cpu/simd/elements.hpp"
#include "backends/cpu/simd/unroll.hpp"

namespace rapt::cpu {
namespace {

constexpr int kWidth = 4;  // floats in a Vec

typedef float Vec __attribute__((vector_size(16)));  // + - * / work lane by lane
typedef int32_t IntVec __attribute__((vector_size(16)));
typedef uint32_t UIntVec __attribute__((vector_size(16)));  // sums may wrap
struct Mask {
  IntVec lanes;  // all ones or zeros
};

inline Vec zero() {
  return Vec{};
}
inline Vec set1(float x) {
  return Vec{x, x, x, x};
}
inline Vec lane_numbers() {
  return Vec{0, 1, 2, 3};
}  // lane i holds i

inline Mask first_lanes(int n) {
  return {IntVec{0, 1, 2, 3} < IntVec{n, n, n, n}};
}  // i < n
// Lane i: bit i.
inline Mask lanes_of(uint32_t bits) {
  const int32_t b = static_cast<int32_t>(bits);
  return {(IntVec{b, b, b, b} & IntVec{1, 2, 4, 8}) != 0};
}
inline Mask less(Vec a, Vec b) {
  return {a < b};
}
inline Mask less_equal(Vec a, Vec b) {
  return {a <= b};
}
inline Mask both(Mask a, Mask b) {
  return {a.lanes & b.lanes};
}
inline IntVec select(IntVec mask, IntVec yes, IntVec no) {
  return (mask & yes) | (~mask & no);
}
inline Vec select(Mask mask, Vec yes, Vec no) {
  return (Vec)select(mask.lanes, (IntVec)yes, (IntVec)no);
}

inline Vec fma(Vec a, Vec b, Vec c) {
  return a * b + c;
}  // a * b + c, rounded once if the ISA can
// a > b ? a : b and a < b ? a : b, so b where either is NaN.
inline Vec max(Vec a, Vec b) {
  return select(Mask{a > b}, a, b);
}
inline Vec min(Vec a, Vec b) {
  return select(Mask{a < b}, a, b);
}
inline Vec abs(Vec x) {
  return (Vec)((IntVec)x & 0x7fffffff);
}
// |magnitude| with the sign of `sign`; magnitude is not negative.
inline Vec copy_sign(Vec magnitude, Vec sign) {
  return (Vec)((IntVec)magnitude | ((IntVec)sign & INT32_MIN));
}
// To an integer, ties to even; |x| < 2^22. Adding 1.5 * 2^23 leaves no room for a fraction.
inline Vec round_nearest(Vec x) {
  return (x + 12582912.0f) - 12582912.0f;
}
// x * 2^n for x in [1/2, 2) and an integer n in [-1000, 126]; 0 or a subnormal for n < -125.
inline Vec scale_by_power_of_2(Vec x, Vec n) {
  const Vec scaled = (Vec)((IntVec)x + (__builtin_convertvector(n, IntVec) << 23));
  return select(Mask{n < -125.0f}, zero(), scaled);
}

// Always in the same order.
inline float reduce_add(Vec x) {
  return (x[0] + x[2]) + (x[1] + x[3]);
}
inline float reduce_max(Vec x) {
  const float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
  return a > b ? a : b;
}
// Lane i is lane i ^ kDistance, a power of 2 below kWidth.
template <int kDistance>
inline Vec swap_lanes(Vec x) {
  return Vec{x[kDistance], x[1 ^ kDistance], x[2 ^ kDistance], x[3 ^ kDistance]};
}

// Loads and stores need no alignment beyond an element's. With a mask, lanes outside it are neither
// read (they are 0) nor written.
inline Vec load(const float* p) {
  Vec x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
inline void store(float* p, Vec x) {
  __builtin_memcpy(p, &x, sizeof x);
}
inline Vec broadcast(const float* p) {
  return set1(*p);
}

// fp16 and bf16 to float, exact, and back, to nearest even; NaN stays NaN. `bits` in the low
// halves.
inline Vec widen(BFloat, IntVec bits) {
  return (Vec)(bits << 16);
}
inline Vec widen(Half, IntVec bits) {
  const IntVec sign = (bits & 0x8000) << 16, exponent = bits & 0x7c00, mantissa = bits & 0x3ff;
  const IntVec normal = ((bits & 0x7fff) << 13) + (112 << 23);
  const IntVec not_finite = 0x7f800000 | (mantissa << 13);
  const IntVec subnormal = (IntVec)(__builtin_convertvector(mantissa, Vec) * 0x1p-24f);
  const IntVec magnitude =
      select(exponent == 0, subnormal, select(exponent == 0x7c00, not_finite, normal));
  return (Vec)(magnitude | sign);
}
inline IntVec narrow(BFloat, Vec x) {
  const IntVec bits = (IntVec)x;
  const IntVec rounded = (IntVec)((UIntVec)bits + 0x7fff + (((UIntVec)bits >> 16) & 1));
  return (select((bits & 0x7fffffff) > 0x7f800000, bits | 0x400000, rounded) >> 16) & 0xffff;
}
inline IntVec narrow(Half, Vec x) {
  const IntVec sign = ((IntVec)x >> 16) & 0x8000, magnitude = (IntVec)x & 0x7fffffff;
  const UIntVec up = (UIntVec)magnitude + 0xfff + (((UIntVec)magnitude >> 13) & 1);
  const IntVec normal = (IntVec)((up - 0x38000000) >> 13);
  // Adding 0.5 aligns the mantissa: the sum's low bits are value * 2^24, rounded to nearest even.
  const IntVec subnormal = (IntVec)((Vec)magnitude + 0.5f) - 0x3f000000;
  const IntVec nan = 0x7e00 | ((magnitude >> 13) & 0x1ff);
  const IntVec infinity = IntVec{} + 0x7c00;
  IntVec half = select(magnitude < 0x38800000, subnormal, normal);
  half = select(magnitude >= 0x477ff000, infinity, half);  // rounds to 65536 or more
  return sign | select(magnitude > 0x7f800000, nan, half);
}

template <typename T>
inline Vec load(const T* p) {
  return widen(T{}, IntVec{p[0].bits, p[1].bits, p[2].bits, p[3].bits});
}
template <typename T>
inline void store(T* p, Vec x) {
  const IntVec bits = narrow(T{}, x);
  for (int i = 0; i < kWidth; i++) p[i].bits = static_cast<uint16_t>(bits[i]);
}
template <typename T>
inline Vec load(const T* p, Mask mask) {
  T copy[kWidth] = {};
  for (int i = 0; i < kWidth; i++)
    if (mask.lanes[i]) copy[i] = p[i];
  return load(copy);
}
template <typename T>
inline void store(T* p, Vec x, Mask mask) {
  T copy[kWidth];
  store(copy, x);
  for (int i = 0; i < kWidth; i++)
    if (mask.lanes[i]) p[i] = copy[i];
}

// Lane i is the sum of r[i]'s lanes, added in the same order for every i.
RAPT_ALWAYS_INLINE inline Vec lane_sums(const Vec (&r)[kWidth]) {
  return Vec{reduce_add(r[0]), reduce_add(r[1]), reduce_add(r[2]), reduce_add(r[3])};
}

// Lane j of r[i] becomes lane i of r[j]. Moves only: any bits pass unchanged.
inline void transpose(Vec (&r)[kWidth]) {
  const Vec a{r[0][0], r[1][0], r[2][0], r[3][0]}, b{r[0][1], r[1][1], r[2][1], r[3][1]};
  const Vec c{r[0][2], r[1][2], r[2][2], r[3][2]}, d{r[0][3], r[1][3], r[2][3], r[3][3]};
  r[0] = a, r[1] = b, r[2] = c, r[3] = d;
}

}  // namespace
}  // namespace rapt::cpu

#include "backends/cpu/simd/math.hpp"
