// The scale of a KV head's scores where fp32 products of q and k may leave its range before it is
// applied, or it is none of fp32's own: then part of it, a power of 2, goes into the queries.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels.hpp"

namespace rapt::cpu {
namespace {

// Scales within 2^-100 and 2^100 stay whole: then a q . k that fp32 drops is none to the score, and
// a difference of two that it can't hold is one of 2^27 scores at least.
constexpr int kPlainScaleExponent = 100;

struct ScoreScale {
  float factor;        // of q . k
  int query_exponent;  // of the power of 2 that queries are multiplied with; mostly 0
};

inline float key_scale(const Problem& problem, int head) {
  return problem.k_scale ? problem.k_scale[problem.scales_per_head ? head : 0] : 1.0f;
}

inline ScoreScale score_scale(const Problem& problem, int head) {
  const double scale = double{problem.scale} * key_scale(problem, head);
  const auto bits = __builtin_bit_cast(uint64_t, scale);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  const bool plain = scale == 0 || !__builtin_isfinite(scale) ||
                     (exponent >= -kPlainScaleExponent && exponent <= kPlainScaleExponent);
  if (plain) return {static_cast<float>(scale), 0};
  const int rest = exponent < 0 ? exponent + kPlainScaleExponent : exponent - kPlainScaleExponent;
  const auto power = __builtin_bit_cast(double, static_cast<uint64_t>(1023 - rest) << 52);
  return {static_cast<float>(scale * power), rest};
}

// Queries, whole vectors of them, times 2^exponent.
template <typename Query>
[[gnu::noinline]] void scale_queries(Query* queries, int64_t count, int exponent) {
  // In two steps, neither of which leaves the exponents of fp32.
  const auto power_of_2 = [](int n) {
    return set1(__builtin_bit_cast(float, static_cast<uint32_t>(127 + n) << 23));
  };
  const Vec first = power_of_2(exponent / 2), second = power_of_2(exponent - exponent / 2);
  for (int64_t i = 0; i < count; i += kWidth)
    store(queries + i, load(queries + i) * first * second);
}

}  // namespace
}  // namespace rapt::cpu
