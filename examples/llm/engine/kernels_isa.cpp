// All kernels, compiled once for each instruction set with that set's flags and LLM_ISA as its
// namespace. Nothing here may use an inline function from a header that other files include, since
// the linker could keep this copy of it for older processors.
//
// The product's shape: rows x 32 accumulators stay in registers while the panel streams by, so a
// weight is loaded once per block of rows: once at all when decoding, where memory is the bound
// (32 weights and 2 x rows x 32 flops a step), and from the second-level cache when prefilling,
// where the multiply-add units are. Each accumulator adds its products in the order of the input
// features whatever the number of rows.
#include <cstring>

#include "llm/engine/kernels.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace llm::LLM_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kMaxRows = 14;  // 28 accumulators of 32 registers
#elif defined(__AVX2__)
constexpr int kLanes = 8, kMaxRows = 3;  // 12 of 16
#else
constexpr int kLanes = 4, kMaxRows = 1;  // 8 of 16
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
  return Vec{} + value;
}

[[gnu::always_inline]] inline Vec select(Bits mask, Vec yes, Vec no) {
  return reinterpret_cast<Vec>((reinterpret_cast<Bits>(yes) & mask) |
                               (reinterpret_cast<Bits>(no) & ~mask));
}

// kLanes bytes or 16-bit numbers as 32-bit ones. Written out, because GCC 12 converts vectors of
// different widths element by element.
[[gnu::always_inline]] inline Ints widen_uint8(const std::byte* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<Ints>(_mm512_maskz_cvtepu8_epi32(0xffff, load<__m128i>(from)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(_mm256_cvtepu8_epi32(_mm_set_epi64x(0, load<int64_t>(from))));
#elif defined(__SSE2__)
  const __m128i zero = _mm_setzero_si128(), bytes = _mm_cvtsi32_si128(load<int32_t>(from));
  return reinterpret_cast<Ints>(_mm_unpacklo_epi16(_mm_unpacklo_epi8(bytes, zero), zero));
#else
  using Bytes = uint8_t __attribute__((vector_size(kLanes)));
  return __builtin_convertvector(load<Bytes>(from), Ints);
#endif
}

[[gnu::always_inline]] inline Ints widen_int8(const std::byte* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<Ints>(_mm512_maskz_cvtepi8_epi32(0xffff, load<__m128i>(from)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(_mm256_cvtepi8_epi32(_mm_set_epi64x(0, load<int64_t>(from))));
#else
  return widen_uint8(from) << 24 >> 24;
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

// Panel formats: kDepth input features to a block of kBytes, of which expand() gives kStep at a
// time, as fp32.
struct Float32 {
  static constexpr int kDepth = 1, kStep = 1;
  static constexpr int64_t kBytes = 4 * kPanelWidth;
  [[gnu::always_inline]] explicit Float32(const std::byte* at) : block(at) {}
  [[gnu::always_inline]] void expand(int, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) weights[0][v] = load<Vec>(block + v * kLanes * 4);
  }
  const std::byte* block;
};

template <Vec (*kWiden)(const std::byte*)>
struct Sixteen {
  static constexpr int kDepth = 1, kStep = 1;
  static constexpr int64_t kBytes = 2 * kPanelWidth;
  [[gnu::always_inline]] explicit Sixteen(const std::byte* at) : block(at) {}
  [[gnu::always_inline]] void expand(int, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) weights[0][v] = kWiden(block + v * kLanes * 2);
  }
  const std::byte* block;
};
using Float16 = Sixteen<widen_float16>;
using BFloat16 = Sixteen<widen_bfloat16>;

struct Q8 {
  static constexpr int kDepth = kQuantisedDepth, kStep = 1;
  static constexpr int64_t kBytes = kQ8BlockBytes;
  [[gnu::always_inline]] explicit Q8(const std::byte* at) : quants(at + 2 * kPanelWidth) {
    for (int v = 0; v < kVectors; ++v) scales[v] = widen_float16(at + v * kLanes * 2);
  }
  [[gnu::always_inline]] void expand(int k, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) {
      const Ints q = widen_int8(quants + k * kPanelWidth + v * kLanes);
      weights[0][v] = __builtin_convertvector(q, Vec) * scales[v];
    }
  }
  Vec scales[kVectors];
  const std::byte* quants;
};

struct Q4 {
  static constexpr int kDepth = kQuantisedDepth, kStep = 2;
  static constexpr int64_t kBytes = kQ4BlockBytes;
  [[gnu::always_inline]] explicit Q4(const std::byte* at) : quants(at + 4 * kPanelWidth) {
    for (int v = 0; v < kVectors; ++v) {
      scales[v] = widen_float16(at + v * kLanes * 2);
      mins[v] = widen_float16(at + (kPanelWidth + v * kLanes) * 2);
    }
  }
  [[gnu::always_inline]] void expand(int k, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) {
      const Ints q = widen_uint8(quants + k / 2 * kPanelWidth + v * kLanes);
      weights[0][v] = __builtin_convertvector(q & 15, Vec) * scales[v] + mins[v];
      weights[1][v] = __builtin_convertvector(q >> 4, Vec) * scales[v] + mins[v];
    }
  }
  Vec scales[kVectors], mins[kVectors];
  const std::byte* quants;
};

template <typename Format, int kRows>
void product_block(const PanelProduct& p, int64_t first_row) {
  const float* x = p.x + first_row * p.x_stride;
  Vec sums[kRows][kVectors] = {};
  const std::byte* at = p.panel;
  for (int64_t block = 0; block < p.depth; block += Format::kDepth, at += Format::kBytes) {
    const Format format(at);
    for (int k = 0; k < Format::kDepth; k += Format::kStep) {
      Vec weights[Format::kStep][kVectors];
      format.expand(k, weights);
      for (int step = 0; step < Format::kStep; ++step) {
        for (int r = 0; r < kRows; ++r) {
          const Vec value = splat(x[r * p.x_stride + block + k + step]);
          for (int v = 0; v < kVectors; ++v) sums[r][v] += value * weights[step][v];
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* out = p.out + (first_row + r) * p.out_stride;
    alignas(64) float row[kPanelWidth];
    for (int v = 0; v < kVectors; ++v) store(row + v * kLanes, sums[r][v]);
    if (p.accumulate) {
      for (int64_t c = 0; c < p.num_columns; ++c) out[c] += row[c];
    } else {
      for (int64_t c = 0; c < p.num_columns; ++c) out[c] = row[c];
    }
  }
}

template <typename Format, int kRows>
void product_rows(const PanelProduct& p, int64_t first_row) {
  for (; first_row + kRows <= p.num_rows; first_row += kRows)
    product_block<Format, kRows>(p, first_row);
  if constexpr (kRows > 1) product_rows<Format, kRows - 1>(p, first_row);
}

// Stores all weights of the panel: kStep * 32 at a time.
template <typename Format, typename Store>
[[gnu::always_inline]] inline void expand_panel(const std::byte* panel, int64_t depth,
                                                const Store& store_weights) {
  for (int64_t block = 0; block < depth; block += Format::kDepth, panel += Format::kBytes) {
    const Format format(panel);
    for (int k = 0; k < Format::kDepth; k += Format::kStep) {
      Vec weights[Format::kStep][kVectors];
      format.expand(k, weights);
      for (int step = 0; step < Format::kStep; ++step)
        store_weights(block + k + step, weights[step]);
    }
  }
}

template <typename Format>
void product(const PanelProduct& p) {
  if (Format::kDepth == 1 || p.num_rows <= kMaxRows) return product_rows<Format, kMaxRows>(p, 0);
  // Many rows: the weights are expanded once for all of them.
  expand_panel<Format>(p.panel, p.depth, [&](int64_t k, const Vec(&weights)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) store(p.scratch + k * kPanelWidth + v * kLanes, weights[v]);
  });
  PanelProduct expanded = p;
  expanded.panel = reinterpret_cast<const std::byte*>(p.scratch);
  product_rows<Float32, kMaxRows>(expanded, 0);
}

template <typename Format>
void expand_lane(const std::byte* panel, int64_t depth, int64_t lane, float* values) {
  expand_panel<Format>(panel, depth, [&](int64_t k, const Vec(&weights)[kVectors]) {
    float row[kPanelWidth];
    for (int v = 0; v < kVectors; ++v) store(row + v * kLanes, weights[v]);
    values[k] = row[lane];
  });
}

// The sum of the lanes in a fixed order.
float sum_lanes(Vec values) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += values[i];
  return sum;
}

void rms_norm(const float* x, const float* weight, float epsilon, int64_t n, float* out) {
  Vec squares = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec v = load<Vec>(x + i);
    squares += v * v;
  }
  float sum = sum_lanes(squares);
  for (; i < n; ++i) sum += x[i] * x[i];
  const float scale = 1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + epsilon);
  for (i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

// e^x by 2^n * e^r, |r| <= ln 2 / 2, and a polynomial whose relative error is below 2^-23. x is
// clamped to where the result is a normal number.
[[gnu::always_inline]] inline Vec exp_of(Vec x) {
  const Vec lowest = splat(-87.0f), highest = splat(88.0f);
  x = select(reinterpret_cast<Bits>(x < lowest), lowest, x);
  x = select(reinterpret_cast<Bits>(x > highest), highest, x);
  // Adding 1.5 * 2^23 rounds to an integer, which then is in the sum's low bits.
  const Vec shifted = x * 1.44269504f + 0x1.8p23f;
  const Vec n = shifted - 0x1.8p23f;
  // ln 2 in two parts, of which 0x1.62e4p-1 times n is exact.
  const Vec r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  Vec p = splat(1.0f / 5040);
  for (const float coefficient : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    p = p * r + coefficient;
  const Bits exponent = reinterpret_cast<Bits>(shifted) << 23;
  return reinterpret_cast<Vec>(reinterpret_cast<Bits>(p) + exponent);
}

void swiglu(float* gate, const float* up, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec g = load<Vec>(gate + i);
    store(gate + i, g / (1.0f + exp_of(-g)) * load<Vec>(up + i));
  }
  for (; i < n; ++i) {
    const float g = gate[i];
    gate[i] = g / (1.0f + exp_of(splat(-g))[0]) * up[i];
  }
}

void rotate(float* first, float* second, int64_t stride, const float* cosines, const float* sines,
            int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float a = first[i * stride], b = second[i * stride];
    first[i * stride] = a * cosines[i] - b * sines[i];
    second[i * stride] = a * sines[i] + b * cosines[i];
  }
}

uint16_t to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>((is_nan ? bits | 0x400000u : rounded) >> 16);
}

#if !defined(__F16C__)
uint16_t to_float16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and more
  if (magnitude < 0x38800000u) {  // subnormal: the sum's low bits are value * 2^24, rounded
    float aligned;
    std::memcpy(&aligned, &magnitude, sizeof(aligned));
    aligned += 0.5f;
    std::memcpy(&bits, &aligned, sizeof(bits));
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}
#endif

void narrow(const float* values, rapt::DType dtype, int64_t n, uint16_t* bits) {
  if (dtype == rapt::DType::kBFloat16) {
    for (int64_t i = 0; i < n; ++i) bits[i] = to_bfloat16(values[i]);
    return;
  }
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    store(bits + i, _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < n; ++i) bits[i] = _cvtss_sh(values[i], _MM_FROUND_TO_NEAREST_INT);
#else
  for (; i < n; ++i) bits[i] = to_float16(values[i]);
#endif
}

template <Vec (*kWiden)(const std::byte*)>
void widen_with(const uint16_t* bits, int64_t n, float* values) {
  const auto* bytes = reinterpret_cast<const std::byte*>(bits);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(values + i, kWiden(bytes + i * 2));
  if (i == n) return;
  uint16_t tail[kLanes] = {};
  std::memcpy(tail, bits + i, static_cast<size_t>(n - i) * 2);
  const Vec last = kWiden(reinterpret_cast<const std::byte*>(tail));
  std::memcpy(values + i, &last, static_cast<size_t>(n - i) * 4);
}

void widen(const uint16_t* bits, rapt::DType dtype, int64_t n, float* values) {
  if (dtype == rapt::DType::kBFloat16)
    widen_with<widen_bfloat16>(bits, n, values);
  else
    widen_with<widen_float16>(bits, n, values);
}

}  // namespace

extern const Kernels kKernels;
const Kernels kKernels = {
    .product = {product<Float32>, product<Float16>, product<BFloat16>, product<Q8>, product<Q4>},
    .expand_lane = {expand_lane<Float32>, expand_lane<Float16>, expand_lane<BFloat16>,
                    expand_lane<Q8>, expand_lane<Q4>},
    .rms_norm = rms_norm,
    .swiglu = swiglu,
    .rotate = rotate,
    .narrow = narrow,
    .widen = widen};

}  // namespace llm::LLM_ISA
