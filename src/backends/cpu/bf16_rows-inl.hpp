// Rows of bf16 in the decode kernel, by the processor's bf16 dot product: two elements of a key,
// and two keys' values, at a time. Sums are fp32; probabilities are rounded to bf16.
#pragma once

#include "backends/cpu/float_rows-inl.hpp"

namespace rapt::cpu {
namespace {

// Lacing: the order in which two rows' elements are paired, and outputs are kept.
template <typename Lacing>
struct LacedBf16Rows {
  using Element = BFloat;
  using Query = BFloat;
  using Probability = BFloat;
  using Operand = Pairs;
  static constexpr int kQueryBytes = sizeof(BFloat);  // of an element that is kept
  static constexpr int kStep = 2 * kWidth;
  // Two accumulators a step.
  template <int kRows>
  static constexpr int kMostSteps = smaller(8 / kRows, 4);

  template <int kRows>
  static void store_query(BFloat* tile, int r, const BFloat* row, int dim) {
    for (int d = 0; d < dim; d += kStep)
      __builtin_memcpy(tile + d * kRows + r * kStep, row + d,
                       static_cast<size_t>(smaller(kStep, dim - d)) * sizeof(BFloat));
  }
  static Pairs load_query(const BFloat* p) { return load_pairs(p); }
  static Pairs load_key(const BFloat* p) { return load_pairs(p); }
  static Pairs load_key(const BFloat* p, int num_elements) {
    return load_pairs(p, first_lanes(num_elements / 2));
  }
  static Vec multiply(Vec sum, Pairs query, Pairs key) { return dot(sum, query, key); }

  // Keys that are scored one behind the other for a head.
  template <int kRows>
  static constexpr int kScoredKeys = kTileKeys<kRows>;
  template <int kRows, typename Ahead>
  RAPT_ALWAYS_INLINE static Vec score(const BFloat* tile, const std::byte* const* keys,
                                      int64_t offset, int dim, Ahead& ahead) {
    return score_tile<LacedBf16Rows, kRows>(tile, keys, offset, dim, ahead);
  }

  static Vec exp2(Vec x) { return exp2_fast(x); }
  template <int kCount>
  RAPT_ALWAYS_INLINE static void store_probabilities(BFloat* out, const Vec (&p)[kCount]) {
    unroll<kCount / 2>(
        [&](auto i) { store_narrowed(out + 2 * i * kWidth, p[2 * i], p[2 * i + 1]); });
  }

  // Output rows are kept laced: load_output() puts them in order.
  template <int kRows, int kTileRows, int kSteps, typename Ahead>
  RAPT_ALWAYS_INLINE static void add_steps(float* out, const WeightedValues<BFloat>& values, int d,
                                           int dim, Ahead& ahead) {
    Ahead cursor = ahead;
    const int64_t offset = values.offset + d * int64_t{sizeof(BFloat)};
    OutputTile<kRows, kTileRows, 2 * kSteps> tile(out + d * kTileRows, values.decay);
    auto& sums = tile.sums;
    const auto add_pair = [&](int k, const BFloat* low, const BFloat* high) RAPT_ALWAYS_INLINE {
      const typename Ahead::template Ask<2 * kSteps * kStep* int{sizeof(BFloat)}> ask(cursor);
      const BFloat* const weights =
          values.probabilities + tile_place<kRows>(0, values.first_key + k);
      Pairs p[kRows];
      unroll<kRows>([&](auto r) { p[r] = broadcast_pair(weights + r * kTileKeys<kRows>); });
      unroll<kSteps>([&](auto i) {
        const LacedPairs value = kSteps > 1 || d + kStep <= dim
                                     ? lace<Lacing>(low + i * kStep, high + i * kStep)
                                     : lace<Lacing>(low + i * kStep, high + i * kStep, dim - d);
        unroll<kRows>([&](auto r) { sums[r][2 * i] = dot(sums[r][2 * i], p[r], value.first); });
        ask.template share<2 * i, 2 * kSteps>();
        unroll<kRows>(
            [&](auto r) { sums[r][2 * i + 1] = dot(sums[r][2 * i + 1], p[r], value.second); });
        ask.template share<2 * i + 1, 2 * kSteps>();
      });
    };
    const std::byte* const* token = values.tokens;
    int k = 0;
    for (; k + 2 <= values.num_keys; k += 2)
      add_pair(k, row_at<BFloat>(token[k], offset), row_at<BFloat>(token[k + 1], offset));
    // An odd last key is paired with zeros, whose probability is 0 too.
    if (k < values.num_keys)
      add_pair(k, row_at<BFloat>(token[k], offset), reinterpret_cast<const BFloat*>(values.zeros));
    tile.write(out + d * kTileRows);
    ahead.go_on_from(cursor);
  }

  static void load_output(const float* out, int64_t vec_stride, Vec* vecs) {
    Lacing::unlace(load(out), load(out + vec_stride), vecs);
  }
};

using Bf16Rows = LacedBf16Rows<QuickLacing>;

template <>
struct RowsOf<BFloat> {
  using type = Bf16Rows;
};

}  // namespace
}  // namespace rapt::cpu
