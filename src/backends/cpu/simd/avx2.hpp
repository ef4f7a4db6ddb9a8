// Vectors of 8 floats: AVX2, FMA, F16C. See simd/baseline.hpp for what each name promises.
#pragma once

#include <immintrin.h>

#include "backends/cpu/simd/elements.hpp"
#include "backends/cpu/simd/unroll.hpp"

namespace rapt::cpu {
namespace {

constexpr int kWidth = 8;

using Vec = __m256;
struct Mask {
  __m256i lanes;  // all ones or zeros
};

inline Vec zero() {
  return _mm256_setzero_ps();
}
inline Vec set1(float x) {
  return _mm256_set1_ps(x);
}
inline Vec lane_numbers() {
  return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
}

inline Mask first_lanes(int n) {
  return {_mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))};
}
inline Mask lanes_of(uint32_t bits) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return {
      _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), bit), bit)};
}
inline Mask less(Vec a, Vec b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ))};
}
inline Mask less_equal(Vec a, Vec b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LE_OQ))};
}
inline Mask both(Mask a, Mask b) {
  return {_mm256_and_si256(a.lanes, b.lanes)};
}
inline Vec select(Mask mask, Vec yes, Vec no) {
  return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(mask.lanes));
}

inline Vec fma(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline Vec max(Vec a, Vec b) {
  return _mm256_max_ps(a, b);
}
inline Vec min(Vec a, Vec b) {
  return _mm256_min_ps(a, b);
}
inline Vec abs(Vec x) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
inline Vec copy_sign(Vec magnitude, Vec sign) {
  return _mm256_or_ps(magnitude, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
}
inline Vec round_nearest(Vec x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vec scale_by_power_of_2(Vec x, Vec n) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  const Vec scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
  return select(less(n, set1(-125.0f)), zero(), scaled);
}

inline float reduce_add(Vec x) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
inline float reduce_max(Vec x) {
  __m128 top = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  top = _mm_max_ps(top, _mm_movehl_ps(top, top));
  return _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
}
template <int kDistance>
inline Vec swap_lanes(Vec x) {
  if constexpr (kDistance == 4)
    return _mm256_permute2f128_ps(x, x, 1);
  else
    return _mm256_permute_ps(x, kDistance == 1 ? 0xb1 : 0x4e);
}

inline Vec load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline Vec load(const float* p, Mask mask) {
  return _mm256_maskload_ps(p, mask.lanes);
}
inline void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x);
}
inline void store(float* p, Vec x, Mask mask) {
  _mm256_maskstore_ps(p, mask.lanes, x);
}
inline Vec broadcast(const float* p) {
  return _mm256_broadcast_ss(p);
}

inline Vec widen(Half, __m128i bits) {
  return _mm256_cvtph_ps(bits);
}
inline Vec widen(BFloat, __m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline __m128i narrow(Half, Vec x) {
  return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline __m128i narrow(BFloat, Vec x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

template <typename T>
inline Vec load(const T* p) {
  return widen(T{}, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
template <typename T>
inline void store(T* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(T{}, x));
}
// AVX2 has no masked access to 16-bit elements; tails are rare (rows are multiples of 8 elements).
template <typename T>
inline Vec load(const T* p, Mask mask) {
  const int bits = _mm256_movemask_ps(_mm256_castsi256_ps(mask.lanes));
  alignas(16) T copy[kWidth] = {};
  for (int i = 0; i < kWidth; i++)
    if (bits >> i & 1) copy[i] = p[i];
  return load(copy);
}
template <typename T>
inline void store(T* p, Vec x, Mask mask) {
  const int bits = _mm256_movemask_ps(_mm256_castsi256_ps(mask.lanes));
  alignas(16) T copy[kWidth];
  store(copy, x);
  for (int i = 0; i < kWidth; i++)
    if (bits >> i & 1) p[i] = copy[i];
}

// bf16 elements, two in each lane. Each half of the lanes is widened in one instruction, where
// elements in order take two.
struct Packed {
  __m256i bits;
};
inline Packed load_packed(const BFloat* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
inline Packed load_packed(const BFloat* p, int num_elements) {
  alignas(32) BFloat copy[2 * kWidth] = {};
  __builtin_memcpy(copy, p, static_cast<size_t>(num_elements) * sizeof(BFloat));
  return load_packed(copy);
}
inline Vec even_elements(Packed x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(x.bits, 16));
}
inline Vec odd_elements(Packed x) {
  return _mm256_castsi256_ps(_mm256_and_si256(x.bits, _mm256_set1_epi32(-0x10000)));
}
inline void put_in_order(Vec even, Vec odd, Vec* vecs) {
  const Vec low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  vecs[0] = _mm256_permute2f128_ps(low, high, 0x20);
  vecs[1] = _mm256_permute2f128_ps(low, high, 0x31);
}

// An operand of several products, which the compiler would otherwise load for each of them.
RAPT_ALWAYS_INLINE inline Vec in_register(Vec x) {
  asm("" : "+x"(x));
  return x;
}

// Blends, which any port takes, stand where a shuffle isn't needed.
RAPT_ALWAYS_INLINE inline Vec lane_sums(const Vec (&r)[kWidth]) {
  Vec pairs[4], fours[2];
  unroll<4>([&](auto i) {
    const Vec a = r[2 * i], b = r[2 * i + 1];
    pairs[i] = _mm256_shuffle_ps(a, b, 0x4e) + _mm256_blend_ps(a, b, 0xcc);
  });
  unroll<2>([&](auto i) {
    const Vec a = pairs[2 * i], b = pairs[2 * i + 1];
    fours[i] = _mm256_shuffle_ps(a, b, 0x88) + _mm256_shuffle_ps(a, b, 0xdd);
  });
  return _mm256_permute2f128_ps(fours[0], fours[1], 0x21) +
         _mm256_blend_ps(fours[0], fours[1], 0xf0);
}

inline void transpose(Vec (&r)[kWidth]) {
  Vec t[8], u[8];
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; i++) {
    u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

}  // namespace
}  // namespace rapt::cpu

#include "backends/cpu/simd/math.hpp"
