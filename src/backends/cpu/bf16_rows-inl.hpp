// Rows of bf16 in the decode kernel, by the processor's bf16 dot product: two elements of a key,
// and two keys' values, at a time. Sums are fp32; probabilities are rounded to bf16.
#pragma once

#include "backends/cpu/float_rows-inl.hpp"

namespace rapt::cpu {
namespace {

struct Bf16Rows {
  using Query = BFloat;
  using Probability = BFloat;
  static constexpr int kStep = 2 * kWidth;

  // Row r of a tile of kRows query rows; `tile` is cleared.
  template <int kRows>
  static void store_query(BFloat* tile, int r, const BFloat* row, int dim) {
    for (int d = 0; d < dim; d += kStep)
      __builtin_memcpy(tile + d * kRows + r * kStep, row + d,
                       static_cast<size_t>(smaller(kStep, dim - d)) * sizeof(BFloat));
  }

  template <int kRows, int kKeys, typename Ahead>
  RAPT_ALWAYS_INLINE static Vec scores(const BFloat* tile, const std::byte* const* keys,
                                       int64_t offset, int dim, Ahead& ahead) {
    Vec sums[kWidth];
    unroll<kWidth>([&](auto i) { sums[i] = zero(); });
    const auto step = [&](int d, auto... tail) RAPT_ALWAYS_INLINE {
      const typename Ahead::template Ask<kKeys * kStep* int{sizeof(BFloat)}> ask(ahead);
      Pairs q[kRows];
      unroll<kRows>([&](auto r) { q[r] = load_pairs(tile + d * kRows + r * kStep); });
      unroll<kKeys>([&](auto k) {
        const Pairs key = load_pairs(row_at<BFloat>(keys[k], offset) + d, tail...);
        ask.template line<k>();
        unroll<kRows>([&](auto r) { sums[r * kKeys + k] = dot(sums[r * kKeys + k], q[r], key); });
      });
    };
    int d = 0;
    for (; d + kStep <= dim; d += kStep) step(d);
    if (d < dim) step(d, first_lanes((dim - d) / 2));
    return lane_sums(sums);
  }

  static Vec exp2(Vec x) { return exp2_fast(x); }

  static void store_probabilities(BFloat* out, const Vec* p, int count) {
    for (int i = 0; i < count; i += 2) store_narrowed(out + i * kWidth, p[i], p[i + 1]);
  }

  // Output rows are kept laced: load_output() puts them in order.
  template <int kRows, int kTileRows, typename Ahead>
  RAPT_ALWAYS_INLINE static void accumulate(float* out, const WeightedValues<BFloat>& values,
                                            int dim, Ahead& ahead) {
    constexpr int kMaxGroups = kRows == 4 ? 2 : 4;
    int d = 0;
    for (; d + kMaxGroups * kStep <= dim; d += kMaxGroups * kStep)
      add_groups<kRows, kTileRows, kMaxGroups>(out, values, d, dim, ahead);
    if (d < dim) add_rest<kRows, kTileRows>(out, values, d, dim, ahead);
  }

  // The steps from d on that accumulate() doesn't take.
  template <int kRows, int kTileRows, typename Ahead>
  [[gnu::noinline]] static void add_rest(float* out, const WeightedValues<BFloat>& values, int d,
                                         int dim, Ahead& ahead) {
    if constexpr (kRows < 4)
      for (; d + 2 * kStep <= dim; d += 2 * kStep)
        add_groups<kRows, kTileRows, 2>(out, values, d, dim, ahead);
    for (; d < dim; d += kStep) add_groups<kRows, kTileRows, 1>(out, values, d, dim, ahead);
  }

  // kGroups steps from d on, two vectors each.
  template <int kRows, int kTileRows, int kGroups, typename Ahead>
  RAPT_ALWAYS_INLINE static void add_groups(float* out, const WeightedValues<BFloat>& values, int d,
                                            int dim, Ahead& ahead) {
    constexpr int kVecs = 2 * kGroups;
    const auto vec = [&](int r, int i) { return out + (d + i * kWidth) * kTileRows + r * kWidth; };
    const int64_t offset = values.offset + d * int64_t{sizeof(BFloat)};
    Vec sums[kRows][kVecs];
    unroll<kRows>([&](auto r) { unroll<kVecs>([&](auto i) { sums[r][i] = load(vec(r, i)); }); });
    if (values.decay)
      unroll<kRows>([&](auto r) {
        const Vec decay = set1(values.decay[r]);
        unroll<kVecs>([&](auto i) { sums[r][i] = sums[r][i] * decay; });
      });
    const auto add_pair = [&](int k, const BFloat* low, const BFloat* high) RAPT_ALWAYS_INLINE {
      constexpr int kBytes = 2 * kGroups * kStep * int{sizeof(BFloat)};
      if constexpr (kGroups == 1) ahead.template keep_ahead<kBytes>();
      using Asker = std::conditional_t<kGroups == 1, NoLookAhead, Ahead>;
      const typename Asker::template Ask<kBytes> ask(ahead);
      Pairs p[kRows];
      unroll<kRows>([&](auto r) {
        p[r] = broadcast_pair(values.probabilities + r * kProbabilityStride + k);
      });
      unroll<kGroups>([&](auto g) {
        const LacedPairs value = kGroups > 1 || d + kStep <= dim
                                     ? lace(low + g * kStep, high + g * kStep)
                                     : lace(low + g * kStep, high + g * kStep, dim - d);
        unroll<kRows>([&](auto r) { sums[r][2 * g] = dot(sums[r][2 * g], p[r], value.first); });
        ask.template line<2 * g>();
        unroll<kRows>(
            [&](auto r) { sums[r][2 * g + 1] = dot(sums[r][2 * g + 1], p[r], value.second); });
        ask.template line<2 * g + 1>();
      });
    };
    const std::byte* const* token = values.tokens;
    int k = 0;
    for (; k + 2 <= values.num_keys; k += 2)
      add_pair(k, row_at<BFloat>(token[k], offset), row_at<BFloat>(token[k + 1], offset));
    // An odd last key is paired with zeros, whose probability is 0 too.
    if (k < values.num_keys)
      add_pair(k, row_at<BFloat>(token[k], offset), reinterpret_cast<const BFloat*>(values.zeros));
    unroll<kRows>([&](auto r) { unroll<kVecs>([&](auto i) { store(vec(r, i), sums[r][i]); }); });
  }

  static void load_output(const float* out, int64_t vec_stride, Vec* vecs) {
    unlace(load(out), load(out + vec_stride), vecs);
  }
};

template <>
struct RowsOf<BFloat> {
  using type = Bf16Rows;
};

}  // namespace
}  // namespace rapt::cpu
