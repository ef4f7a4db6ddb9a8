// Rows of bf16 in the decode kernel, by the processor's bf16 dot product: two elements of a key,
// and two keys' values, at a time. Sums are fp32; probabilities are rounded to bf16.
#pragma once

#include "backends/cpu/float_rows-inl.hpp"

namespace rapt::cpu {
namespace {

struct Bf16Rows {
  using Query = BFloat;
  using Probability = BFloat;
  static constexpr int kValueStep = 2 * kWidth;

  static void store_query(BFloat* query, const BFloat* row, int dim) {
    __builtin_memcpy(query, row, static_cast<size_t>(dim) * sizeof(BFloat));
  }

  template <int kRows, int kKeys>
  static Vec scores(const BFloat* query, int64_t query_stride, const std::byte* const* keys,
                    int64_t offset, int dim) {
    Vec sums[kWidth];
#pragma GCC unroll 16
    for (Vec& sum : sums) sum = zero();
    int d = 0;
    for (; d + 2 * kWidth <= dim; d += 2 * kWidth) {
      Pairs key[kKeys];
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; k++) key[k] = load_pairs(row_at<BFloat>(keys[k], offset) + d);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r++) {
        const Pairs q = load_pairs(query + r * query_stride + d);
#pragma GCC unroll 16
        for (int k = 0; k < kKeys; k++) sums[r * kKeys + k] = dot(sums[r * kKeys + k], q, key[k]);
      }
    }
    if (d < dim) {
      const Mask tail = first_lanes((dim - d) / 2);
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; k++) {
        const Pairs key = load_pairs(row_at<BFloat>(keys[k], offset) + d, tail);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; r++)
          sums[r * kKeys + k] =
              dot(sums[r * kKeys + k], load_pairs(query + r * query_stride + d), key);
      }
    }
    return lane_sums(sums);
  }

  static void store_probabilities(BFloat* out, const Vec* p, int count) {
    for (int i = 0; i < count; i += 2) store_narrowed(out + i * kWidth, p[i], p[i + 1]);
  }

  // Output rows are kept laced: load_output() puts them in order.
  template <int kRows, typename Prefetch>
  static void accumulate(float* out, int64_t out_stride, const float* decay,
                         const BFloat* probability, int64_t probability_stride,
                         const std::byte* const* values, int num_keys, int64_t offset, int dim,
                         const std::byte* zeros, Prefetch prefetch) {
    constexpr int kMaxGroups = kRows == 4 ? 2 : 4;
    int d = 0;
    auto take = [&]<int kGroups>(int last_elements) {
      accumulate_groups<kRows, kGroups>(out + d, out_stride, decay, probability, probability_stride,
                                        values, num_keys, offset + d * int64_t{sizeof(BFloat)},
                                        zeros, last_elements, prefetch);
      d += kGroups * kValueStep;
    };
    while (d + kMaxGroups * kValueStep <= dim) take.template operator()<kMaxGroups>(kValueStep);
    if constexpr (kMaxGroups > 2)
      if (d + 2 * kValueStep <= dim) take.template operator()<2>(kValueStep);
    while (d < dim) take.template operator()<1>(smaller(kValueStep, dim - d));
  }

  // kGroups groups of kValueStep elements, the last of last_elements.
  template <int kRows, int kGroups, typename Prefetch>
  static void accumulate_groups(float* out, int64_t out_stride, const float* decay,
                                const BFloat* probability, int64_t probability_stride,
                                const std::byte* const* values, int num_keys, int64_t offset,
                                const std::byte* zeros, int last_elements, Prefetch prefetch) {
    Vec sums[kRows][2 * kGroups];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 16
      for (int i = 0; i < 2 * kGroups; i++)
        sums[r][i] = load(out + r * out_stride + i * kWidth) * set1(decay[r]);
    for (int k = 0; k < num_keys; k += 2) {
      prefetch(2 * kGroups);  // as many lines as are read here
      const BFloat* low = row_at<BFloat>(values[k], offset);
      // An odd last key is paired with zeros, whose probability is 0 too.
      const BFloat* high = k + 1 < num_keys ? row_at<BFloat>(values[k + 1], offset)
                                            : reinterpret_cast<const BFloat*>(zeros);
      LacedPairs value[kGroups];
#pragma GCC unroll 16
      for (int g = 0; g < kGroups; g++) {
        const bool whole = g + 1 < kGroups || last_elements == kValueStep;
        value[g] = whole ? lace(low + g * kValueStep, high + g * kValueStep)
                         : lace(low + g * kValueStep, high + g * kValueStep, last_elements);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r++) {
        const Pairs p = broadcast_pair(probability + r * probability_stride + k);
#pragma GCC unroll 16
        for (int g = 0; g < kGroups; g++) {
          sums[r][2 * g] = dot(sums[r][2 * g], p, value[g].first);
          sums[r][2 * g + 1] = dot(sums[r][2 * g + 1], p, value[g].second);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 16
      for (int i = 0; i < 2 * kGroups; i++) store(out + r * out_stride + i * kWidth, sums[r][i]);
  }

  static void load_output(const float* out, Vec* vecs) {
    unlace(load(out), load(out + kWidth), vecs);
  }
};

template <>
struct RowsOf<BFloat> {
  using type = Bf16Rows;
};

}  // namespace
}  // namespace rapt::cpu
