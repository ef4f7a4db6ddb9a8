// All kernels, compiled once for each instruction set with that set's flags and LLM_ISA as its
// namespace. Nothing here may use an inline function from a header that other files include, since
// the linker could keep this copy of it for older processors.
#include <cstring>

#include "llm/engine/kernels.hpp"
#include "llm/engine/product-inl.hpp"
#include "llm/engine/vectors-inl.hpp"

namespace llm::LLM_ISA {
namespace {

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
