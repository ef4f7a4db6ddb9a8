// AVX-512 with AVX512-BF16: dot products of bf16 pairs, twice the rate of fp32 FMA.
#pragma once

#include "backends/cpu/simd/avx512.hpp"

namespace rapt::cpu {
namespace {

// kWidth pairs of neighbouring bf16. A subnormal element counts as zero in dot().
using Pairs = __m512bh;

inline Pairs as_pairs(__m512i bits) {
  return (__m512bh)bits;
}
inline Pairs load_pairs(const BFloat* p) {
  return as_pairs(_mm512_loadu_si512(p));
}
// Pair i of the result is p[2i], p[2i + 1] where the mask has lane i, else zeros.
inline Pairs load_pairs(const BFloat* p, Mask mask) {
  return as_pairs(_mm512_maskz_loadu_epi32(mask, p));
}
inline Pairs broadcast_pair(const BFloat* p) {
  int32_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return as_pairs(_mm512_set1_epi32(bits));
}
// sum + a.first * b.first + a.second * b.second, lane by lane.
inline Vec dot(Vec sum, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sum, a, b);
}
// p[0, kWidth) = low, p[kWidth, 2 * kWidth) = high, to nearest even; subnormals become zero.
inline void store_narrowed(BFloat* p, Vec low, Vec high) {
  _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}
// The same value, which the compiler must keep: in loops around asm it would build constants anew.
inline Vec kept(Vec x) {
  asm("" : "+v"(x));
  return x;
}
inline __m512i kept(int x) {
  return _mm512_castps_si512(kept(_mm512_castsi512_ps(_mm512_set1_epi32(x))));
}
// What works on pairs in a loop, with its constants in registers.
class PairMaker {
 public:
  // Pair i is low[i], high[i], to nearest, ties away from zero. Integer adds and a byte shuffle,
  // which tile products do not hold up.
  Pairs narrow(Vec low, Vec high) const {
    const __m512i a = _mm512_add_epi32(_mm512_castps_si512(low), half_);
    const __m512i b = _mm512_add_epi32(_mm512_castps_si512(high), half_);
    return as_pairs(_mm512_mask_shuffle_epi8(b, 0x3333333333333333, a, upper_bytes_));
  }
  // sum + x.first + x.second.
  Vec add(Vec sum, Pairs x) const { return dot(sum, x, as_pairs(ones_)); }

 private:
  __m512i half_ = kept(0x8000), ones_ = kept(0x3f803f80);
  __m512i upper_bytes_ = _mm512_castps_si512(
      kept(_mm512_castsi512_ps(_mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302))));
};
inline Vec first_of_pairs(Pairs x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32((__m512i)x, 16));
}
inline Vec second_of_pairs(Pairs x) {
  const __m512i upper_half = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return _mm512_castsi512_ps(_mm512_and_si512((__m512i)x, upper_half));
}
inline void store(BFloat* p, Pairs x) {
  _mm512_storeu_si512(p, (__m512i)x);
}
// The first num_elements, which is at most 32.
inline void store(BFloat* p, Pairs x, int num_elements) {
  if (num_elements == 32) return store(p, x);
  _mm512_mask_storeu_epi16(p, (uint32_t{1} << num_elements) - 1, (__m512i)x);
}
// x - floor(x), in [0, 1]; 0 of an infinity.
inline Vec fraction(Vec x) {
  return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
inline Vec round_up(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
// Lanes i where bits[i] has that bit.
inline Mask lanes_with_bit(const uint32_t* bits, int bit) {
  return _mm512_test_epi32_mask(_mm512_loadu_si512(bits), _mm512_set1_epi32(1 << bit));
}
inline bool any(Mask mask) {
  return mask != 0;
}
// Elements [0, 2 * kWidth) of two rows, element by element as pairs.
struct LacedPairs {
  Pairs first, second;
};
// In the order that takes the fewest instructions.
struct QuickLacing {
  static LacedPairs lace(__m512i low, __m512i high) {
    return {as_pairs(_mm512_unpacklo_epi16(low, high)), as_pairs(_mm512_unpackhi_epi16(low, high))};
  }
  static void unlace(Vec first, Vec second, Vec* in_order) {
    in_order[0] = _mm512_permutex2var_ps(
        first, _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23), second);
    in_order[1] = _mm512_permutex2var_ps(
        first, _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31),
        second);
  }
};
// Even elements, then odd ones.
struct EvenOddLacing {
  static constexpr __mmask32 kOdd = 0xaaaaaaaa;
  static LacedPairs lace(__m512i low, __m512i high) {
    return {as_pairs(_mm512_mask_blend_epi16(kOdd, low, _mm512_slli_epi32(high, 16))),
            as_pairs(_mm512_mask_blend_epi16(kOdd, _mm512_srli_epi32(low, 16), high))};
  }
  static void unlace(Vec even, Vec odd, Vec* in_order) {
    in_order[0] = _mm512_permutex2var_ps(
        even, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), odd);
    in_order[1] = _mm512_permutex2var_ps(
        even, _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), odd);
  }
};
template <typename Lacing>
inline LacedPairs lace(const BFloat* low, const BFloat* high) {
  return Lacing::lace(_mm512_loadu_si512(low), _mm512_loadu_si512(high));
}
// Zeros from num_elements on.
template <typename Lacing>
inline LacedPairs lace(const BFloat* low, const BFloat* high, int num_elements) {
  const __mmask32 mask = (uint32_t{1} << num_elements) - 1;  // num_elements < 32
  return Lacing::lace(_mm512_maskz_loadu_epi16(mask, low), _mm512_maskz_loadu_epi16(mask, high));
}
// Lane r * (kWidth / kRows) + k of the result: lane k * kRows + r.
template <int kRows>
inline Vec rows_first(Vec x) {
  if constexpr (kRows == 2)
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), x);
  if constexpr (kRows == 4)
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x);
  return x;
}
// Of kRows rows of 16 elements, in parts: element k of row r is from[(k / kPart) * 16 + r * kPart +
// k % kPart], kPart = 16 / kRows. to[r][k]: the pair (element, 0); to[kRows + r][k]: (0, element).
template <int kRows>
inline void spread_rows(const BFloat* from, BFloat* to) {
  __m512i rows[kRows];
  unroll<kRows>([&](auto i) {
    rows[i] = _mm512_cvtepu16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * kWidth)));
  });
  if constexpr (kRows == 2) {
    const __m512i low = _mm512_shuffle_i32x4(rows[0], rows[1], 0x44);
    rows[1] = _mm512_shuffle_i32x4(rows[0], rows[1], 0xee);
    rows[0] = low;
  }
  if constexpr (kRows == 4) {
    __m512i halves[4];
    unroll<2>([&](auto i) {
      halves[i] = _mm512_shuffle_i32x4(rows[2 * i], rows[2 * i + 1], 0x44);
      halves[i + 2] = _mm512_shuffle_i32x4(rows[2 * i], rows[2 * i + 1], 0xee);
    });
    unroll<2>([&](auto i) {
      rows[2 * i] = _mm512_shuffle_i32x4(halves[2 * i], halves[2 * i + 1], 0x88);
      rows[2 * i + 1] = _mm512_shuffle_i32x4(halves[2 * i], halves[2 * i + 1], 0xdd);
    });
  }
  unroll<kRows>([&](auto r) {
    _mm512_storeu_si512(to + r * 32, rows[r]);
    _mm512_storeu_si512(to + (kRows + r) * 32, _mm512_slli_epi32(rows[r], 16));
  });
}
// to[d][i] = rows[i][d] of 32 rows and 8 elements.
inline void transpose_32x8(const BFloat* const* rows, int from, BFloat* to) {
  const auto eight = [&](int i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i] + from));
  };
  // Quarter q of a vector: rows 8q to 8q + 7. Loads with a mask spare the port of the shuffles.
  __m512i r[8], t[8];
  for (int i = 0; i < 8; i++) {
    r[i] = _mm512_castsi128_si512(eight(i));
    r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x00f0, eight(i + 8));
    r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x0f00, eight(i + 16));
    r[i] = _mm512_mask_broadcast_i32x4(r[i], 0xf000, eight(i + 24));
  }
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm512_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; i++)
    for (int half = 0; half < 2; half++) {
      r[4 * i + 2 * half] = _mm512_unpacklo_epi32(t[4 * i + half], t[4 * i + half + 2]);
      r[4 * i + 2 * half + 1] = _mm512_unpackhi_epi32(t[4 * i + half], t[4 * i + half + 2]);
    }
  for (int i = 0; i < 4; i++) {
    _mm512_storeu_si512(to + 64 * i, _mm512_unpacklo_epi64(r[i], r[i + 4]));
    _mm512_storeu_si512(to + 64 * i + 32, _mm512_unpackhi_epi64(r[i], r[i + 4]));
  }
}
// Rows i of 16, four dwords each: result j holds their dword j.
template <typename Row>
RAPT_ALWAYS_INLINE inline void transpose_16x4(const Row& row, __m512i (&r)[4]) {
  const auto four = [&](int i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row(i)));
  };
  __m512i t[4];
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_castsi128_si512(four(i));
    r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x00f0, four(i + 4));
    r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x0f00, four(i + 8));
    r[i] = _mm512_mask_broadcast_i32x4(r[i], 0xf000, four(i + 12));
  }
  for (int i = 0; i < 2; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; i++) {
    r[2 * i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[2 * i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
  }
}
// to[p][i] = pair p of rows[i], of 16 rows and 4 pairs.
RAPT_ALWAYS_INLINE inline void transpose_pairs(const BFloat* const* rows, int from, BFloat* to) {
  __m512i r[4];
  transpose_16x4([&](int i) { return rows[i] + from; }, r);
  for (int i = 0; i < 4; i++) _mm512_storeu_si512(to + 32 * i, r[i]);
}
// columns[j]: from[16 i + j] of 16 rows i.
inline void transpose_16x4(const float* from, Vec (&columns)[4]) {
  __m512i r[4];
  transpose_16x4([&](int i) { return from + i * 16; }, r);
  for (int i = 0; i < 4; i++) columns[i] = _mm512_castsi512_ps(r[i]);
}
// columns[j]: pair j of 16 rows of 16 pairs.
inline void transpose_16x4(const BFloat* from, Pairs (&columns)[4]) {
  __m512i r[4];
  transpose_16x4([&](int i) { return from + i * 32; }, r);
  for (int i = 0; i < 4; i++) columns[i] = as_pairs(r[i]);
}
// to[j][i] = from[i][j]; rows of `to` are `stride` apart.
inline void transpose_16x16(const float* from, float* to, int stride) {
  for (int j = 0; j < 16; j += 4) {
    Vec columns[4];
    transpose_16x4(from + j, columns);
    for (int i = 0; i < 4; i++) store(to + (j + i) * stride, columns[i]);
  }
}
// Lane i holds the pair low[i], high[i] as bits; zeros outside the mask.
inline Vec interleave(const BFloat* low, const BFloat* high, Mask mask) {
  const __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, low));
  const __m512i b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, high));
  return _mm512_castsi512_ps(_mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
}

}  // namespace
}  // namespace rapt::cpu
