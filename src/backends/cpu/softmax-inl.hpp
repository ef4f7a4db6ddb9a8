// Online softmax of one row over one block of keys, in base 2. Every decision is the row's own, so
// that its bits don't depend on the rows beside it.
#pragma once

#include "backends/cpu/products-inl.hpp"
#include "backends/cpu/scale-inl.hpp"
#include "backends/cpu/visible-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr float kLog2E = 1.44269504088896f, kLn2 = 0.693147180559945f;
constexpr float kMinusInfinity = -__builtin_inff(), kLargest = __FLT_MAX__;

// log2 of how far a maximum may lag behind before the output is rescaled: exponentials stay below
// 2^8, which fp32 sums and bf16 products bear.
constexpr float kMaxLag = 8;

// From q . k to the score in log2 units. Softcap, ALiBi and scales that turn the order of the
// scores around need a pass of their own; otherwise `scale` is applied inside the exponential.
struct ScoreRule {
  float scale;         // k_scale included; log2 units unless softcap
  int query_exponent;  // what ScoreScale gives the queries
  float softcap;       // 0 = none
  bool in_advance;     // apply() has put the scores in log2 units
  float factor() const { return in_advance ? 1.0f : scale; }
};

inline ScoreRule score_rule(const Problem& problem, int head) {
  auto [scale, query_exponent] = score_scale(problem, head);
  if (!problem.softcap) scale *= kLog2E;
  return {scale, query_exponent, problem.softcap,
          problem.softcap != 0 || problem.alibi_slopes || !(scale > 0)};
}

// ALiBi's slope in log2 units. The largest finite ones are none in these: they pass the range of
// fp32 with any distance, but must not at 0.
inline float log2_slope(const Problem& problem, int query_head) {
  if (!problem.alibi_slopes) return 0;
  return smaller(larger(problem.alibi_slopes[query_head] * kLog2E, -kLargest), kLargest);
}

// Which query a row is.
struct Row {
  int token, query_head;
  Range keys;  // that it sees by position
};

// Scores of keys [first, last) of the block, in place; those outside `seen` or hidden by the custom
// mask become -inf. `block` is the block's first key.
inline void apply(const ScoreRule& rule, const Problem& problem, const Request& request,
                  const Row& row, int block, Range seen, int first, int last, float* s) {
  const float slope = log2_slope(problem, row.query_head);
  const int64_t position = int64_t{row.token} + request.kv_len - request.query_len - block;
  for (int key = first; key < last; key += kWidth) {
    Vec x = load(s + key);
    if (rule.in_advance) {
      x = x * set1(rule.scale);
      if (rule.softcap != 0) x = tanh(x / set1(rule.softcap)) * set1(rule.softcap * kLog2E);
      if (problem.alibi_slopes) {
        const Vec distance = abs(set1(static_cast<float>(position - key)) - lane_numbers());
        x = fma(set1(-slope), distance, x);
      }
    }
    // Lanes [hidden, shown) are keys that the row sees.
    const int hidden = clamp(seen.begin - key, 0, kWidth);
    const int shown = clamp(seen.end - key, 0, kWidth);
    uint32_t bits = ((1u << shown) - 1) & ~((1u << hidden) - 1);
    if (problem.custom_mask && shown > hidden)
      bits &= mask_bits(problem, request, row.token, block + key, shown);
    store(s + key, select(lanes_of(bits), x, set1(kMinusInfinity)));
  }
}

inline float largest(const float* s, int first, int last) {
  Vec top[2] = {set1(kMinusInfinity), set1(kMinusInfinity)};
  int key = first;
  for (; key + 2 * kWidth <= last; key += 2 * kWidth) {
    top[0] = max(load(s + key), top[0]);
    top[1] = max(load(s + key + kWidth), top[1]);
  }
  if (key < last) top[0] = max(load(s + key), top[0]);
  return reduce_max(max(top[0], top[1]));
}

// Running state of a row.
struct RowState {
  float max;  // in units of ScoreRule::factor(), as the output was last rescaled to; -inf = no key
  float sum;  // of 2^((score - max) * factor)
};

// Takes the block's scores s into the state and leaves probabilities p [begin, end) for the product
// with V, zeros where the row sees nothing. Returns what the row's output must be multiplied with.
template <typename T, typename Products>
inline float softmax_row(const ScoreRule& rule, const Problem& problem, const Request& request,
                         const Row& row, int block, Range tile, float* s,
                         typename Products::Element* p, RowState& state) {
  constexpr int kGrain = Products::kStep * kWidth;
  const Range seen{larger(row.keys.begin - block, tile.begin),
                   smaller(row.keys.end - block, tile.end)};
  const bool sees = seen.begin < seen.end;
  const int first = sees ? seen.begin / kGrain * kGrain : tile.end;
  const int last = sees ? round_up_to(seen.end, kGrain) : tile.end;
  const Vec zeros[Products::kStep] = {};
  for (int key = tile.begin; key < first; key += kGrain)
    Products::store_probabilities(p + key, zeros);
  for (int key = last; key < tile.end; key += kGrain) Products::store_probabilities(p + key, zeros);
  if (!sees) return 1;

  const bool whole = first == seen.begin && last == seen.end && !problem.custom_mask;
  if (rule.in_advance || !whole) apply(rule, problem, request, row, block, seen, first, last, s);

  float rescale = 1;
  const float top = largest(s, first, last);
  if ((top - state.max) * rule.factor() > kMaxLag) {
    const float exponent[kWidth] = {(state.max - top) * rule.factor()};
    float result[kWidth];
    store(result, exp2_accurate(load(exponent)));
    rescale = result[0];
    state.sum *= rescale;
    state.max = top;
  }
  // The difference comes before the factor: scores may be so large that rounding their products
  // would be visible. A row that has seen nothing yet has only hidden keys here: any finite maximum
  // will do.
  const Vec max = set1(state.max == kMinusInfinity ? 0.0f : state.max);
  const Vec factor = set1(rule.factor());
  Vec sum[Products::kStep] = {};
  for (int key = first; key < last; key += kGrain) {
    Vec x[Products::kStep];
    for (int i = 0; i < Products::kStep; i++) {
      x[i] = Products::exp2(T{}, (load(s + key + i * kWidth) - max) * factor);
      sum[i] = sum[i] + x[i];
    }
    Products::store_probabilities(p + key, x);
  }
  for (int i = 1; i < Products::kStep; i++) sum[0] = sum[0] + sum[i];
  state.sum += reduce_add(sum[0]);
  return rescale;
}

}  // namespace
}  // namespace rapt::cpu
