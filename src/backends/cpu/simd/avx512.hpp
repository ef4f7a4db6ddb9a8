// Vectors of 16 floats: AVX-512 F, BW, VL, DQ. See simd/baseline.hpp for what each name promises.
#pragma once

#include <immintrin.h>

#include "backends/cpu/simd/elements.hpp"
#include "backends/cpu/simd/unroll.hpp"

namespace rapt::cpu {
namespace {

constexpr int kWidth = 16;

using Vec = __m512;
using Mask = __mmask16;

inline Vec zero() {
  return _mm512_setzero_ps();
}
inline Vec set1(float x) {
  return _mm512_set1_ps(x);
}
inline Vec lane_numbers() {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

inline Mask first_lanes(int n) {
  return n >= 16 ? Mask{0xffff} : n <= 0 ? Mask{0} : static_cast<Mask>((1u << n) - 1);
}
inline Mask lanes_of(uint32_t bits) {
  return static_cast<Mask>(bits);
}
inline Mask less(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
inline Mask less_equal(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
inline Mask both(Mask a, Mask b) {
  return a & b;
}
inline Mask either(Mask a, Mask b) {
  return a | b;
}
inline Vec select(Mask mask, Vec yes, Vec no) {
  return _mm512_mask_blend_ps(mask, no, yes);
}

inline Vec fma(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline Vec max(Vec a, Vec b) {
  return _mm512_max_ps(a, b);
}
inline Vec min(Vec a, Vec b) {
  return _mm512_min_ps(a, b);
}
inline Vec abs(Vec x) {
  return _mm512_abs_ps(x);
}
inline Vec copy_sign(Vec magnitude, Vec sign) {
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(magnitude),
                                                       _mm512_castps_si512(sign),
                                                       _mm512_set1_epi32(INT32_MIN), 0xd8));
}
inline Vec round_nearest(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vec scale_by_power_of_2(Vec x, Vec n) {
  return _mm512_scalef_ps(x, n);
}

inline float reduce_add(Vec x) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
inline float reduce_max(Vec x) {
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 top = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  top = _mm_max_ps(top, _mm_movehl_ps(top, top));
  return _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
}
template <int kDistance>
inline Vec swap_lanes(Vec x) {
  if constexpr (kDistance >= 4)
    return _mm512_shuffle_f32x4(x, x, kDistance == 4 ? 0xb1 : 0x4e);
  else
    return _mm512_permute_ps(x, kDistance == 1 ? 0xb1 : 0x4e);
}

inline Vec load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline Vec load(const float* p, Mask mask) {
  return _mm512_maskz_loadu_ps(mask, p);
}
inline void store(float* p, Vec x) {
  _mm512_storeu_ps(p, x);
}
inline void store(float* p, Vec x, Mask mask) {
  _mm512_mask_storeu_ps(p, mask, x);
}
inline Vec broadcast(const float* p) {
  return _mm512_set1_ps(*p);
}

inline Vec widen(Half, __m256i bits) {
  return _mm512_cvtph_ps(bits);
}
inline Vec widen(BFloat, __m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline __m256i narrow(Half, Vec x) {
  return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline __m256i narrow_by_integers(BFloat, Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
}
// The instruction of AVX512-BF16, where this is compiled for it, takes subnormals for zero.
inline __m256i narrow(BFloat, Vec x) {
#if defined(__AVX512BF16__)
  constexpr int kSubnormal = 0x20;
  if (_mm512_fpclass_ps_mask(x, kSubnormal) == 0) return (__m256i)_mm512_cvtneps_pbh(x);
#endif
  return narrow_by_integers(BFloat{}, x);
}

template <typename T>
inline Vec load(const T* p) {
  return widen(T{}, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
template <typename T>
inline Vec load(const T* p, Mask mask) {
  return widen(T{}, _mm256_maskz_loadu_epi16(mask, p));
}
template <typename T>
inline void store(T* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(T{}, x));
}
template <typename T>
inline void store(T* p, Vec x, Mask mask) {
  _mm256_mask_storeu_epi16(p, mask, narrow(T{}, x));
}

RAPT_ALWAYS_INLINE inline Vec lane_sums(const Vec (&r)[kWidth]) {
  Vec t[8], u[4], w[2];
  unroll<8>([&](auto i) {
    const Vec a = r[2 * i], b = r[2 * i + 1];
    t[i] = _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
  });
  unroll<4>([&](auto i) {
    const __m512d a = _mm512_castps_pd(t[2 * i]), b = _mm512_castps_pd(t[2 * i + 1]);
    u[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)) + _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
  });
  unroll<2>([&](auto i) {
    const Vec a = u[2 * i], b = u[2 * i + 1];
    w[i] = _mm512_shuffle_f32x4(a, b, 0x88) + _mm512_shuffle_f32x4(a, b, 0xdd);
  });
  return _mm512_shuffle_f32x4(w[0], w[1], 0x88) + _mm512_shuffle_f32x4(w[0], w[1], 0xdd);
}

inline void transpose(Vec (&r)[kWidth]) {
  __m512i t[16], u[16];
  for (int i = 0; i < 8; i++) {
    const __m512i a = _mm512_castps_si512(r[2 * i]), b = _mm512_castps_si512(r[2 * i + 1]);
    t[2 * i] = _mm512_unpacklo_epi32(a, b);
    t[2 * i + 1] = _mm512_unpackhi_epi32(a, b);
  }
  for (int i = 0; i < 4; i++) {
    u[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    u[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(u[i], u[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(u[i], u[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(u[i + 8], u[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(u[i + 8], u[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
    r[i + 8] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd));
    r[i + 4] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88));
    r[i + 12] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd));
  }
}

}  // namespace
}  // namespace rapt::cpu

#include "backends/cpu/simd/math.hpp"
