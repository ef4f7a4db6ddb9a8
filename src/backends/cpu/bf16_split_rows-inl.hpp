// Rows of bf16 in the decode kernel, in fp32, where the processor has no product of theirs but
// widens the even and the odd elements of a vector in one instruction each. Rows are kept apart
// like that: of each 16 elements the even ones, then the odd ones.
//
// A key takes 128 multiply-adds for 4 rows of 128 elements, so these bound the kernel wherever
// memory is quick (docs/notes/2026-11-30-cpu-zen3.md), and loops are unrolled to little else.
#pragma once

#include "backends/cpu/float_rows-inl.hpp"

namespace rapt::cpu {
namespace {

struct SplitRows {
  using Element = BFloat;
  using Query = float;
  using Probability = float;
  static constexpr int kQueryBytes = sizeof(float);
  static constexpr int kStep = 2 * kWidth;
  // Two accumulators a step.
  template <int kRows>
  static constexpr int kMostSteps = 4 / kRows;

  template <int kRows>
  static void store_query(float* tile, int r, const BFloat* row, int dim) {
    for (int d = 0; d < dim; d += kStep) {
      const Packed x = d + kStep <= dim ? load_packed(row + d) : load_packed(row + d, dim - d);
      store(tile + d * kRows + r * kStep, even_elements(x));
      store(tile + d * kRows + r * kStep + kWidth, odd_elements(x));
    }
  }

  // A head's query rows come from L2 once for so many keys, since those of all heads fill L1.
  template <int kRows>
  static constexpr int kScoredKeys = 8;
  template <int kRows, typename Ahead>
  RAPT_ALWAYS_INLINE static Vec score(const float* tile, const std::byte* const* keys,
                                      int64_t offset, int dim, Ahead& ahead) {
    constexpr int kKeys = kTileKeys<kRows>, kSteps = 4;
    Ahead cursor = ahead;
    Vec sums[kWidth];
    unroll<kWidth>([&](auto i) { sums[i] = zero(); });
    const BFloat* rows[kKeys];
    unroll<kKeys>([&](auto k) { rows[k] = row_at<BFloat>(keys[k], offset); });
    const auto step = [&](int d, auto... num_elements) RAPT_ALWAYS_INLINE {
      const float* const queries = tile + d * kRows;
      unroll<2>([&](auto half) RAPT_ALWAYS_INLINE {
        Vec x[kKeys];
        unroll<kKeys>([&](auto k) {
          const Packed key = load_packed(rows[k] + d, num_elements...);
          x[k] = half == 0 ? even_elements(key) : odd_elements(key);
        });
        unroll<kRows>([&](auto r) {
          const Vec query = in_register(load(queries + r * kStep + half * kWidth));
          unroll<kKeys>(
              [&](auto k) { sums[r * kKeys + k] = fma(query, x[k], sums[r * kKeys + k]); });
        });
      });
    };
    int d = 0;
    for (; d + kSteps * kStep <= dim; d += kSteps * kStep) {
      const typename Ahead::template Ask<kKeys * kSteps * kStep* int{sizeof(BFloat)}> ask(cursor);
      unroll<kSteps>([&](auto i) RAPT_ALWAYS_INLINE {
        step(d + i * kStep);
        ask.template share<i, kSteps>();
      });
    }
    for (; d < dim; d += kStep) {
      const typename Ahead::template Ask<kKeys * kStep* int{sizeof(BFloat)}> ask(cursor);
      ask.template share<0, 1>();
      if (d + kStep <= dim)
        step(d);
      else
        step(d, dim - d);
    }
    ahead.go_on_from(cursor);
    return lane_sums(sums);
  }

  static Vec exp2(Vec x) { return exp2_accurate(x); }
  template <int kCount>
  RAPT_ALWAYS_INLINE static void store_probabilities(float* out, const Vec (&p)[kCount]) {
    FloatRows<BFloat>::store_probabilities(out, p);
  }

  template <int kRows, int kTileRows, int kSteps, typename Ahead>
  RAPT_ALWAYS_INLINE static void add_steps(float* out, const WeightedValues<float>& values, int d,
                                           int dim, Ahead& ahead) {
    Ahead cursor = ahead;
    const int64_t offset = values.offset + d * int64_t{sizeof(BFloat)};
    OutputTile<kRows, kTileRows, 2 * kSteps> tile(out + d * kTileRows, values.decay);
    auto& sums = tile.sums;
    const auto add = [&](int k, const float* weights) RAPT_ALWAYS_INLINE {
      const BFloat* const row = row_at<BFloat>(values.tokens[k], offset);
      Vec p[kRows];
      unroll<kRows>([&](auto r) { p[r] = broadcast(weights + r * kTileKeys<kRows>); });
      unroll<kSteps>([&](auto i) {
        const Packed value = kSteps > 1 || d + kStep <= dim ? load_packed(row + i * kStep)
                                                            : load_packed(row, dim - d);
        const Vec even = even_elements(value), odd = odd_elements(value);
        unroll<kRows>([&](auto r) { sums[r][2 * i] = fma(p[r], even, sums[r][2 * i]); });
        unroll<kRows>([&](auto r) { sums[r][2 * i + 1] = fma(p[r], odd, sums[r][2 * i + 1]); });
      });
    };
    const auto weights_of = [&](int k) {
      return values.probabilities + tile_place<kRows>(0, values.first_key + k);
    };
    constexpr int kTokens = 8, kKeys = kTileKeys<kRows>;
    int k = 0;
    // Whole tiles where the first key begins one, as it does for all rows at once.
    if (kKeys > 2 || values.first_key % 2 == 0)
      for (; k + kTokens <= values.num_keys; k += kTokens) {
        const typename Ahead::template Ask<kTokens * kSteps * kStep* int{sizeof(BFloat)}> ask(
            cursor);
        const float* const first = weights_of(k);
        unroll<kTokens>([&](auto i) RAPT_ALWAYS_INLINE {
          add(k + i, kKeys == 2 ? first + tile_place<kRows>(0, i) : weights_of(k + i));
          ask.template share<i, kTokens>();
        });
      }
    for (; k < values.num_keys; k++) {
      const typename Ahead::template Ask<kSteps * kStep* int{sizeof(BFloat)}> ask(cursor);
      ask.template share<0, 1>();
      add(k, weights_of(k));
    }
    tile.write(out + d * kTileRows);
    ahead.go_on_from(cursor);
  }

  static void load_output(const float* out, int64_t vec_stride, Vec* vecs) {
    put_in_order(load(out), load(out + vec_stride), vecs);
  }
};

template <>
struct RowsOf<BFloat> {
  using type = SplitRows;
};

}  // namespace
}  // namespace rapt::cpu
