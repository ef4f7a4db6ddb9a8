// Online softmax of 32 rows over a group of 32 keys. A vector holds one key's scores of 16 rows, so
// maxima and sums are vertical, and nothing crosses lanes: a row's bits are its own.
//
// The exponentials are taken against the maximum so far, which nearly always may stay; the group's
// own is found in the same pass. Where it has grown too far, the pass is repeated: rows whose
// maximum stays get the same bits again. So softmax needs no decision before its end, and runs in
// small portions between the tile products of the next group's scores.
#pragma once

#include "backends/cpu/amx_pack-inl.hpp"

namespace rapt::cpu {
namespace {

// 2^x within 3e-6, exactly 1 of 0; 0 of -inf, NaN of NaN. A minimax fit of the relative error on
// [0, 1) that is 1 at 0.
inline Vec exp2_probability(Vec x) {
  const Vec f = fraction(x);
  Vec p = set1(0.013426684f);
  p = fma(p, f, set1(0.052242474f));
  p = fma(p, f, set1(0.241280205f));
  p = fma(p, f, set1(0.693044845f));
  p = fma(p, f, set1(1.0f));
  return scale_by_power_of_2(p, x);
}

// The portions of the pass: S [2 key tiles][2 row tiles] to P [2 row tiles][kKeyBlock / 32], of
// which it is one tile each.
class SoftmaxPass {
 public:
  SoftmaxPass(const float* scores, BFloat* probabilities, float factor, const Vec (&max)[2])
      : scores_(scores),
        probabilities_(probabilities),
        factor_(set1(factor)),
        minus_max_{minus_shift(max[0]), minus_shift(max[1])},
        top_{set1(kMinusInfinity), set1(kMinusInfinity)},
        sum_{},
        rounded_{} {}

  // The next `count` keys, an even number.
  void advance(int count) {
    for (const int stop = smaller(key_ + count, kKeyGroup); key_ < stop; key_ += 2)
#pragma GCC unroll 2
      for (int tile = 0; tile < 2; tile++) {
        const float* s = scores_ + (key_ / 16 * 2 + tile) * kTileFloats + key_ % 16 * 16;
        const Vec even = load(s), odd = load(s + 16);
        top_[tile] = max(odd, max(even, top_[tile]));
        const Vec x = exp2_probability(fma(even, factor_, minus_max_[tile]));
        const Vec y = exp2_probability(fma(odd, factor_, minus_max_[tile]));
        sum_[tile][0] = sum_[tile][0] + x;
        sum_[tile][1] = sum_[tile][1] + y;
        const Pairs p = narrow_paired(x, y);
        rounded_[tile] = add_pairs(rounded_[tile], p);
        store(probabilities_ + tile * (kKeyBlock * 16) + key_ * 16, p);
      }
  }
  void finish() {
    advance(kKeyGroup);
  }

  // The largest score, not scaled; sums of the exponentials, and of them as P holds them.
  Vec top(int tile) const {
    return top_[tile];
  }
  Vec sum(int tile) const {
    return sum_[tile][0] + sum_[tile][1];
  }
  Vec rounded_sum(int tile) const {
    return rounded_[tile];
  }

 private:
  // Rows that have seen nothing: any finite maximum will do.
  static Vec minus_shift(Vec max) {
    return zero() - select(less(set1(kMinusInfinity), max), max, zero());
  }

  const float* scores_;
  BFloat* probabilities_;
  int key_ = 0;
  Vec factor_, minus_max_[2], top_[2], sum_[2][2], rounded_[2];
};

// Applies the rules that are not just a scale to S of a key group and 16 rows, in place, and hides
// with -inf what a row does not see.
inline void apply(const ScoreRule& rule, const Problem& problem, const Request& request,
                  const Row* rows, int group, float* s) {
  alignas(64) float begin[16], end[16], slope[16] = {}, position[16];
  for (int i = 0; i < 16; i++) {
    begin[i] = static_cast<float>(clamp(rows[i].keys.begin - group, 0, kKeyGroup));
    end[i] = static_cast<float>(clamp(rows[i].keys.end - group, 0, kKeyGroup));
    if (problem.alibi_slopes) slope[i] = problem.alibi_slopes[rows[i].query_head] * kLog2E;
    position[i] =
        static_cast<float>(int64_t{rows[i].token} + request.kv_len - request.query_len - group);
  }
  uint32_t bits[16] = {};  // of the custom mask: bit per key
  const int known = smaller(kKeyGroup, request.kv_len - group);
  for (int i = 0; i < 16 && problem.custom_mask; i++)
    bits[i] = mask_bits(problem, request, rows[i].token, group, known);
  for (int key = 0; key < kKeyGroup; key++) {
    float* const at = s + key / 16 * 2 * kTileFloats + key % 16 * 16;
    Vec x = load(at);
    if (rule.in_advance) {
      x = x * set1(rule.scale);
      if (rule.softcap != 0) x = tanh(x / set1(rule.softcap)) * set1(rule.softcap * kLog2E);
      const Vec distance = abs(load(position) - set1(static_cast<float>(key)));
      if (problem.alibi_slopes) x = fma(zero() - load(slope), distance, x);
    }
    const Vec here = set1(static_cast<float>(key));
    Mask seen = both(less_equal(load(begin), here), less(here, load(end)));
    if (problem.custom_mask) seen = both(seen, lanes_with_bit(bits, key));
    store(at, select(seen, x, set1(kMinusInfinity)));
  }
}

}  // namespace
}  // namespace rapt::cpu
