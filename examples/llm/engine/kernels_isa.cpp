// All kernels, compiled once for each instruction set with that set's flags and LLM_ISA as its
// namespace. Nothing here may use an inline function from a header that other files include, since
// the linker could keep this copy of it for older processors.
//
// The product's shape: rows x 32 accumulators stay in registers while the panel streams by, so a
// weight is loaded once per block of rows: once at all when decoding, where memory is the bound
// (32 weights and 2 x rows x 32 flops a step), and from the second-level cache when prefilling,
// where the multiply-add units are. A panel is one stream, which the processor prefetches; several
// panels side by side, 12 KB apart, read at half the speed.
//
// A row has the same bits whatever the number of rows: each accumulator adds its products in the
// order of the input features; in quantised formats those of a block, whose sum is then scaled and
// added to the row's, so that a weight costs a conversion and a multiply-add.
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

// Panel formats: expand() gives kStep input features at a time, as fp32, of the block that enter()
// was told. A block is kDepth input features.
struct Float32 {
  static constexpr int kDepth = 1, kStep = 1;
  static constexpr int64_t kBytes = 4 * kPanelWidth;
  void enter(const std::byte* at) { block = at; }
  [[gnu::always_inline]] void expand(int, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) weights[0][v] = load<Vec>(block + v * kLanes * 4);
  }
  const std::byte* block;
};

template <Vec (*kWiden)(const std::byte*)>
struct Sixteen {
  static constexpr int kDepth = 1, kStep = 1;
  static constexpr int64_t kBytes = 2 * kPanelWidth;
  void enter(const std::byte* at) { block = at; }
  [[gnu::always_inline]] void expand(int, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) weights[0][v] = kWiden(block + v * kLanes * 2);
  }
  const std::byte* block;
};
using Float16 = Sixteen<widen_float16>;
using BFloat16 = Sixteen<widen_bfloat16>;

// Quantised formats: scale(v) and, if kHasMin, min(v) are those of vector v's output features. What
// expand() gives of input feature k is its quant over input_scale(k).
struct Q8 {
  static constexpr int kDepth = kQuantisedDepth, kStep = 1;
  static constexpr int64_t kBytes = kQ8BlockBytes;
  static constexpr bool kHasMin = false;
  static constexpr float input_scale(int) { return 1; }
  void enter(const std::byte* at) { block = at; }
  [[gnu::always_inline]] Vec scale(int v) const { return widen_float16(block + v * kLanes * 2); }
  [[gnu::always_inline]] void expand(int k, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) {
      const Ints q = widen_int8(block + (2 + k) * kPanelWidth + v * kLanes);
      weights[0][v] = __builtin_convertvector(q, Vec);
    }
  }
  const std::byte* block;
};

// A quant is converted where it stands in its word, times 16 to the power of its place, which the
// input makes good for (prepare_q4): the last one, which would be the sign, is shifted down.
struct Q4 {
  static constexpr int kDepth = kQuantisedDepth, kStep = kQ4Word;
  static constexpr int64_t kBytes = kQ4BlockBytes;
  static constexpr bool kHasMin = true;
  static constexpr float input_scale(int k) {
    const int place = k % kQ4Word;
    return place + 1 == kQ4Word ? 1 : 1.0f / static_cast<float>(1 << 4 * place);
  }
  void enter(const std::byte* at) { block = at; }
  [[gnu::always_inline]] Vec scale(int v) const { return widen_float16(block + v * kLanes * 2); }
  [[gnu::always_inline]] Vec min(int v) const {
    return widen_float16(block + (kPanelWidth + v * kLanes) * 2);
  }
  [[gnu::always_inline]] void expand(int k, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) {
      const auto words = load<Bits>(block + (4 + k / 2) * kPanelWidth + v * kLanes * 4);
      for (int i = 0; i < kStep; ++i) {
        const Bits q = i + 1 == kStep ? words >> 4 * i : words & 15u << 4 * i;
        weights[i][v] = __builtin_convertvector(reinterpret_cast<Ints>(q), Vec);
      }
    }
  }
  const std::byte* block;
};

// A quantised panel as expand_panel() leaves it for many rows: for each block its scales and mins,
// then what expand() gave of each input feature, all fp32.
template <bool kWithMin>
struct Expanded {
  static constexpr int kDepth = kQuantisedDepth, kStep = 1;
  static constexpr int64_t kBytes = kExpandedBlockBytes;
  static constexpr bool kHasMin = kWithMin;
  void enter(const std::byte* at) { block = at; }
  [[gnu::always_inline]] Vec vector_of(int64_t row, int v) const {
    return load<Vec>(block + (row * kPanelWidth + v * kLanes) * 4);
  }
  [[gnu::always_inline]] Vec scale(int v) const { return vector_of(0, v); }
  [[gnu::always_inline]] Vec min(int v) const { return vector_of(1, v); }
  [[gnu::always_inline]] void expand(int k, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) weights[0][v] = vector_of(2 + k, v);
  }
  const std::byte* block;
};

template <typename Format>
constexpr bool kIsQuantised = Format::kDepth > 1;

// Adds the products of kBlocks neighbouring blocks to each row's sums. `x` is at the first one's
// input features, `x_sums` at its sum.
template <typename Format, int kRows, int kBlocks>
[[gnu::always_inline]] inline void add_blocks(const std::byte* at, const float* x,
                                              const float* x_sums, int64_t x_stride,
                                              Vec (&sums)[kRows][kVectors]) {
  Format blocks[kBlocks];
  Vec products[kBlocks][kRows][kVectors] = {};
  for (int b = 0; b < kBlocks; ++b) blocks[b].enter(at + b * Format::kBytes);
  for (int k = 0; k < Format::kDepth; k += Format::kStep) {
    for (int b = 0; b < kBlocks; ++b) {
      Vec weights[Format::kStep][kVectors];
      blocks[b].expand(k, weights);
      for (int step = 0; step < Format::kStep; ++step) {
        for (int r = 0; r < kRows; ++r) {
          const Vec value = splat(x[r * x_stride + b * Format::kDepth + k + step]);
          Vec(&to)[kVectors] = kIsQuantised<Format> ? products[b][r] : sums[r];
          for (int v = 0; v < kVectors; ++v) to[v] += value * weights[step][v];
        }
      }
    }
  }
  if constexpr (kIsQuantised<Format>) {
    for (int b = 0; b < kBlocks; ++b) {
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] += products[b][r][v] * blocks[b].scale(v);
          if constexpr (Format::kHasMin)
            sums[r][v] += splat(x_sums[r * x_stride + b]) * blocks[b].min(v);
        }
      }
    }
  }
}

template <typename Format, int kRows>
[[gnu::noinline]] void product_rows_of_panel(const PanelProduct& p, const std::byte* panel,
                                             int64_t first_row, int64_t first_column) {
  // A sum waits for its last multiply-add: with few of them, two blocks take turns. The lines are
  // then no longer read in their order, and the processor doesn't see what comes.
  constexpr int kBlocks = kIsQuantised<Format> && kRows * kVectors <= 4 ? 2 : 1;
  constexpr int64_t kBytes = kBlocks * Format::kBytes;
  const float* x = p.x + first_row * p.x_stride;
  const float* x_sums = x + p.depth;
  const int64_t num_blocks = p.depth / Format::kDepth;
  Vec sums[kRows][kVectors] = {};
  int64_t i = 0;
  for (; i + kBlocks <= num_blocks; i += kBlocks) {
    const std::byte* at = panel + i * Format::kBytes;
    if constexpr (kBlocks > 1)
      for (int64_t line = 0; line < kBytes; line += kCacheLine)
        __builtin_prefetch(at + kPrefetchBytes + line);
    add_blocks<Format, kRows, kBlocks>(at, x + i * Format::kDepth, x_sums + i, p.x_stride, sums);
  }
  for (; i < num_blocks; ++i)
    add_blocks<Format, kRows, 1>(panel + i * Format::kBytes, x + i * Format::kDepth, x_sums + i,
                                 p.x_stride, sums);
  const int64_t left = p.num_columns - first_column;
  const int64_t num_columns = left < kPanelWidth ? left : kPanelWidth;
  for (int r = 0; r < kRows; ++r) {
    float* out = p.out + (first_row + r) * p.out_stride + first_column;
    alignas(64) float row[kPanelWidth];
    for (int v = 0; v < kVectors; ++v) store(row + v * kLanes, sums[r][v]);
    if (p.accumulate) {
      for (int64_t c = 0; c < num_columns; ++c) out[c] += row[c];
    } else {
      for (int64_t c = 0; c < num_columns; ++c) out[c] = row[c];
    }
  }
}

// Rows from first_row on, as many at a time as the registers hold.
template <typename Format, int kRows>
void product_of_panel(const PanelProduct& p, const std::byte* panel, int64_t first_row,
                      int64_t first_column) {
  for (; first_row + kRows <= p.num_rows; first_row += kRows)
    product_rows_of_panel<Format, kRows>(p, panel, first_row, first_column);
  if constexpr (kRows > 1) product_of_panel<Format, kRows - 1>(p, panel, first_row, first_column);
}

template <typename Format>
void expand_panel(const std::byte* panel, int64_t depth, float* expanded) {
  for (int64_t block = 0; block < depth; block += Format::kDepth, panel += Format::kBytes) {
    Format format;
    format.enter(panel);
    for (int v = 0; v < kVectors; ++v) {
      store(expanded + v * kLanes, format.scale(v));
      if constexpr (Format::kHasMin) store(expanded + kPanelWidth + v * kLanes, format.min(v));
    }
    expanded += 2 * kPanelWidth;
    for (int k = 0; k < Format::kDepth;
         k += Format::kStep, expanded += Format::kStep * kPanelWidth) {
      Vec weights[Format::kStep][kVectors];
      format.expand(k, weights);
      for (int step = 0; step < Format::kStep; ++step)
        for (int v = 0; v < kVectors; ++v)
          store(expanded + step * kPanelWidth + v * kLanes, weights[step][v]);
    }
  }
}

template <typename Format>
void product(const PanelProduct& p) {
  // Few rows take the weights as they come; for more they are expanded once.
  constexpr int kFewRows = kMaxRows < 4 ? kMaxRows : 4;
  const int64_t panel_bytes = p.depth / Format::kDepth * Format::kBytes;
  const std::byte* panel = p.panels;
  for (int64_t column = 0; column < p.num_columns; column += kPanelWidth, panel += panel_bytes) {
    if constexpr (!kIsQuantised<Format>) {
      product_of_panel<Format, kMaxRows>(p, panel, 0, column);
    } else if (p.num_rows <= kFewRows) {
      product_of_panel<Format, kFewRows>(p, panel, 0, column);
    } else {
      expand_panel<Format>(panel, p.depth, p.scratch);
      product_of_panel<Expanded<Format::kHasMin>, kMaxRows>(
          p, reinterpret_cast<const std::byte*>(p.scratch), 0, column);
    }
  }
}

template <typename Format>
void expand_lane(const std::byte* panel, int64_t depth, int64_t lane, float* values) {
  for (int64_t block = 0; block < depth; block += Format::kDepth, panel += Format::kBytes) {
    Format format;
    format.enter(panel);
    for (int k = 0; k < Format::kDepth; k += Format::kStep) {
      Vec weights[Format::kStep][kVectors];
      format.expand(k, weights);
      for (int step = 0; step < Format::kStep; ++step) {
        float row[kPanelWidth];
        for (int v = 0; v < kVectors; ++v) {
          Vec value = weights[step][v];
          if constexpr (kIsQuantised<Format>) {
            value *= format.scale(v) * Format::input_scale(k + step);
            if constexpr (Format::kHasMin) value += format.min(v);
          }
          store(row + v * kLanes, value);
        }
        values[block + k + step] = row[lane];
      }
    }
  }
}

// The sum of the lanes in a fixed order, by halves.
[[gnu::always_inline]] inline float sum_lanes(Vec values) {
  alignas(64) float lanes[kLanes];
  store(lanes, values);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

void prepare_q4(const float* x, int64_t depth, float* prepared) {
  alignas(64) float scales[kQuantisedDepth];
  for (int k = 0; k < kQuantisedDepth; ++k) scales[k] = Q4::input_scale(k);
  for (int64_t block = 0; block < depth; block += kQuantisedDepth) {
    Vec sum = {};
    for (int k = 0; k < kQuantisedDepth; k += kLanes) {
      const Vec values = load<Vec>(x + block + k);
      store(prepared + block + k, values * load<Vec>(scales + k));
      sum += values;
    }
    prepared[depth + block / kQuantisedDepth] = sum_lanes(sum);
  }
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

void swiglu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec g = load<Vec>(gate + i);
    store(out + i, g / (1.0f + exp_of(-g)) * load<Vec>(up + i));
  }
  for (; i < n; ++i) out[i] = gate[i] / (1.0f + exp_of(splat(-gate[i]))[0]) * up[i];
}

void rotate_neighbours(float* __restrict head, const float* __restrict cosines,
                       const float* __restrict sines, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = a * cosines[i] - b * sines[i];
    head[2 * i + 1] = a * sines[i] + b * cosines[i];
  }
}

void rotate_halves(float* __restrict head, const float* __restrict cosines,
                   const float* __restrict sines, int64_t n) {
  float* __restrict second = head + n;
  for (int64_t i = 0; i < n; ++i) {
    const float a = head[i], b = second[i];
    head[i] = a * cosines[i] - b * sines[i];
    second[i] = a * sines[i] + b * cosines[i];
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
    .prepare_q4 = prepare_q4,
    .rms_norm = rms_norm,
    .swiglu = swiglu,
    .rotate_neighbours = rotate_neighbours,
    .rotate_halves = rotate_halves,
    .narrow = narrow,
    .widen = widen};

}  // namespace llm::LLM_ISA
