// Vectors as wide as the instruction set has them, and how smaller numbers become vectors of fp32.
// For kernels_isa.cpp alone.
#pragma once

#include <cstring>

#include "llm/engine/kernels.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace llm::LLM_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kMaxRows = 14;  // 28 sums in 32 registers
#elif defined(__AVX2__)
constexpr int kLanes = 8, kMaxRows = 3;  // 12 in 16
#else
constexpr int kLanes = 4, kMaxRows = 1;  // 8 in 16
#endif
constexpr int kVectors = kPanelWidth / kLanes;

using Vec = float __attribute__((vector_size(kLanes * 4)));
using Bits = uint32_t __attribute__((vector_size(kLanes * 4)));
using Ints = int32_t __attribute__((vector_size(kLanes * 4)));
using Half = uint16_t __attribute__((vector_size(kLanes * 2)));

template <typename T>
[[gnu::always_inline]] inline T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
[[gnu::always_inline]] inline void store(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

[[gnu::always_inline]] inline Vec splat(float value) {
  return value - Vec{};
}

[[gnu::always_inline]] inline Vec select(Bits mask, Vec yes, Vec no) {
  return reinterpret_cast<Vec>((reinterpret_cast<Bits>(yes) & mask) |
                               (reinterpret_cast<Bits>(no) & ~mask));
}

// kLanes bytes or 16-bit numbers as 32-bit ones. Written out, because GCC 12 converts vectors of
// different widths element by element.
[[gnu::always_inline]] inline Ints widen_int8(const std::byte* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<Ints>(_mm512_maskz_cvtepi8_epi32(0xffff, load<__m128i>(from)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(_mm256_cvtepi8_epi32(_mm_set_epi64x(0, load<int64_t>(from))));
#elif defined(__SSE2__)
  const __m128i zero = _mm_setzero_si128(), bytes = _mm_cvtsi32_si128(load<int32_t>(from));
  const __m128i high = _mm_unpacklo_epi16(zero, _mm_unpacklo_epi8(zero, bytes));
  return reinterpret_cast<Ints>(high) >> 24;
#else
  using Bytes = int8_t __attribute__((vector_size(kLanes)));
  return __builtin_convertvector(load<Bytes>(from), Ints);
#endif
}

[[gnu::always_inline]] inline Bits widen_uint16(const std::byte* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<Bits>(_mm512_maskz_cvtepu16_epi32(0xffff, load<__m256i>(from)));
#elif defined(__AVX2__)
  return reinterpret_cast<Bits>(_mm256_cvtepu16_epi32(load<__m128i>(from)));
#elif defined(__SSE2__)
  const __m128i halves = _mm_set_epi64x(0, load<int64_t>(from));
  return reinterpret_cast<Bits>(_mm_unpacklo_epi16(halves, _mm_setzero_si128()));
#else
  return __builtin_convertvector(load<Half>(from), Bits);
#endif
}

[[gnu::always_inline]] inline Vec widen_bfloat16(const std::byte* from) {
  return reinterpret_cast<Vec>(widen_uint16(from) << 16);
}

[[gnu::always_inline]] inline Vec widen_float16(const std::byte* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_maskz_cvtph_ps(0xffff, load<__m256i>(from)));
#elif defined(__F16C__)
  return reinterpret_cast<Vec>(_mm256_cvtph_ps(load<__m128i>(from)));
#else
  const Bits half = widen_uint16(from);
  const Bits sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  // Exponent and mantissa in fp32's places; the product puts the exponent's bias right, for
  // subnormals too. Infinity and NaN need the largest exponent.
  const Vec scaled = reinterpret_cast<Vec>(magnitude << 13) * 0x1p112f;
  const Bits special = reinterpret_cast<Bits>(magnitude >= 0x7c00u);
  return reinterpret_cast<Vec>(reinterpret_cast<Bits>(scaled) | (special & 0x7f800000u) | sign);
#endif
}

}  // namespace
}  // namespace llm::LLM_ISA
