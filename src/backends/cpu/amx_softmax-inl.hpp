// Online softmax of 16 rows over a group of 32 keys. A vector holds one key's scores of 16 rows, so
// maxima and sums are vertical, and nothing crosses lanes: a row's bits are its own.
//
// The exponentials are taken against a shift that nearly always may stay. None is above the sum of
// the group's, so that sum tells whether it may; only where not is the maximum looked for, and the
// pass repeated. So softmax needs no decision before its end, and runs in small portions between
// tile products. Those leave vector arithmetic one port, 8 cycles of it for 16 scores: hence an
// exponential of six operations.
#pragma once

#include "backends/cpu/amx_pack-inl.hpp"

namespace rapt::cpu {
namespace {

// A shift stays while a row's exponentials of a key group sum to less: kMaxLag, for their sum.
constexpr float kMaxGroupSum = 1 << 8;
// From this shift on, products of score and factor are rounded visibly.
constexpr float kLargeShift = 1 << 20;

// Of a row tile's pass over a key group: the exponentials, and the same as P holds them.
struct Sums {
  Vec exact, rounded;
};

// That pass: S [2 key tiles] to a tile of P, kPortion pairs of keys at a time. Its state stays in
// registers if everything that gets the object is inlined.
template <int kPortion>
class SoftmaxPass {
 public:
  SoftmaxPass(const float* scores, BFloat* probabilities, float factor, Vec shift)
      : scores_(scores),
        end_(scores + 2 * kTileFloats),
        probabilities_(probabilities),
        factor_(kept(set1(factor))),
        minus_shift_(kept(zero() - shift)) {}

  // Steps of four products that a pass can run beside, a portion after each product.
  static constexpr int kSteps = kKeyGroup / 8 / kPortion;

  // The next portion.
  RAPT_ALWAYS_INLINE void advance() {
#pragma GCC unroll 4
    for (int i = 0; i < kPortion; i++) take_pair(fused());
  }
  // After the rest.
  RAPT_ALWAYS_INLINE Sums finish() {
    while (scores_ != end_) take_pair(fused());
    return {even_ + odd_, rounded_};
  }
  // A pass that is right for large shifts as well. There the product is rounded before the shift is
  // taken off, as the maximum's was when it became the shift, so that the largest score gives 1.
  Sums finish_with_large_shifts() {
    const Mask large = less_equal(set1(kLargeShift), abs(minus_shift_));
    while (scores_ != end_)
      take_pair(
          [&](Vec score) { return select(large, score * factor_ + minus_shift_, fused()(score)); });
    return {even_ + odd_, rounded_};
  }

 private:
  auto fused() const {
    return [this](Vec score) RAPT_ALWAYS_INLINE { return fma(score, factor_, minus_shift_); };
  }
  // exponent(score) is what 2 is raised to.
  template <typename Exponent>
  RAPT_ALWAYS_INLINE void take_pair(const Exponent& exponent) {
    const Vec x = exp2(exponent(load(scores_)));
    const Vec y = exp2(exponent(load(scores_ + 16)));
    even_ = even_ + x;
    odd_ = odd_ + y;
    const Pairs p = pairs_.narrow(x, y);
    rounded_ = pairs_.add(rounded_, p);
    store(probabilities_, p);
    scores_ += 2 * 16;
    probabilities_ += 2 * 16;
  }
  // 2^x within 9e-5, a twentieth of a rounding to bf16; exact if x is whole; 0 of -inf, NaN of NaN.
  // A minimax fit of the relative error on [0, 1) that is 1 at 0.
  RAPT_ALWAYS_INLINE Vec exp2(Vec x) const {
    const Vec f = fraction(x);
    return scale_by_power_of_2(fma(fma(fma(c3_, f, c2_), f, c1_), f, c0_), x);
  }

  const float *scores_, *end_;
  BFloat* probabilities_;
  Vec factor_, minus_shift_;
  Vec c0_ = kept(set1(1.0f)), c1_ = kept(set1(0.69511664f)), c2_ = kept(set1(0.22764498f)),
      c3_ = kept(set1(0.07706724f));
  PairMaker pairs_{};
  Vec even_{}, odd_{}, rounded_{};
};

// Applies the rules that are not just a scale to S of a key group and 16 rows, in place, and hides
// with -inf what a row does not see.
inline void apply(const ScoreRule& rule, const Problem& problem, const Request& request,
                  const Row* rows, int group, float* s) {
  alignas(64) float begin[16], end[16], slope[16], position[16];
  for (int i = 0; i < 16; i++) {
    begin[i] = static_cast<float>(clamp(rows[i].keys.begin - group, 0, kKeyGroup));
    end[i] = static_cast<float>(clamp(rows[i].keys.end - group, 0, kKeyGroup));
    slope[i] = log2_slope(problem, rows[i].query_head);
    position[i] =
        static_cast<float>(int64_t{rows[i].token} + request.kv_len - request.query_len - group);
  }
  uint32_t bits[16] = {};  // of the custom mask: bit per key
  const int known = smaller(kKeyGroup, request.kv_len - group);
  for (int i = 0; i < 16 && problem.custom_mask; i++)
    bits[i] = mask_bits(problem, request, rows[i].token, group, known);
  for (int key = 0; key < kKeyGroup; key++) {
    float* const at = s + key * 16;
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
