// Rows of any element type in the decode kernel, in fp32, on any instruction set.
#pragma once

#include "backends/cpu/rows-inl.hpp"

namespace rapt::cpu {
namespace {

template <typename T>
struct FloatRows {
  using Element = T;          // of the cache
  using Query = float;        // how a query row is kept
  using Probability = float;  // how a probability is kept
  using Operand = Vec;
  static constexpr int kQueryBytes = sizeof(float);  // of an element that is kept
  static constexpr int kStep = kWidth;               // rows are padded to a multiple of this
  // Accumulators that fit the registers beside their operands, of each of kRows rows.
  template <int kRows>
  static constexpr int kMostSteps = smaller((kWidth == 16 ? 16 : 8) / kRows, 8);

  // Row r of a tile of kRows query rows; `tile` is cleared.
  template <int kRows>
  static void store_query(float* tile, int r, const T* row, int dim) {
    for (int d = 0; d < dim; d += kStep)
      store(tile + d * kRows + r * kStep, load(row + d, first_lanes(smaller(kStep, dim - d))));
  }
  static Vec load_query(const float* p) { return load(p); }
  static Vec load_key(const T* p) { return load(p); }
  static Vec load_key(const T* p, int num_elements) { return load(p, first_lanes(num_elements)); }
  static Vec multiply(Vec sum, Vec query, Vec key) { return fma(query, key, sum); }

  // Keys that are scored one behind the other for a head.
  template <int kRows>
  static constexpr int kScoredKeys = kTileKeys<kRows>;
  template <int kRows, typename Ahead>
  RAPT_ALWAYS_INLINE static Vec score(const float* tile, const std::byte* const* keys,
                                      int64_t offset, int dim, Ahead& ahead) {
    return score_tile<FloatRows, kRows>(tile, keys, offset, dim, ahead);
  }

  static Vec exp2(Vec x) { return exp2_accurate(x); }
  template <int kCount>
  RAPT_ALWAYS_INLINE static void store_probabilities(float* out, const Vec (&p)[kCount]) {
    unroll<kCount>([&](auto i) { store(out + i * kWidth, p[i]); });
  }

  // kSteps steps from d on.
  template <int kRows, int kTileRows, int kSteps, typename Ahead>
  RAPT_ALWAYS_INLINE static void add_steps(float* out, const WeightedValues<float>& values, int d,
                                           int dim, Ahead& ahead) {
    Ahead cursor = ahead;
    const int64_t offset = values.offset + d * int64_t{sizeof(T)};
    const Mask tail = first_lanes(smaller(kStep, dim - d));
    OutputTile<kRows, kTileRows, kSteps> tile(out + d * kTileRows, values.decay);
    for (int k = 0; k < values.num_keys; k++) {
      const typename Ahead::template Ask<kSteps * kStep* int{sizeof(T)}> ask(cursor);
      const float* const weights =
          values.probabilities + tile_place<kRows>(0, values.first_key + k);
      Vec p[kRows];
      unroll<kRows>([&](auto r) { p[r] = broadcast(weights + r * kTileKeys<kRows>); });
      unroll<kSteps>([&](auto i) {
        const T* at = row_at<T>(values.tokens[k], offset) + i * kStep;
        const Vec value = kSteps > 1 || d + kStep <= dim ? load(at) : load(at, tail);
        ask.template share<i, kSteps>();
        unroll<kRows>([&](auto r) { tile.sums[r][i] = fma(p[r], value, tile.sums[r][i]); });
      });
    }
    tile.write(out + d * kTileRows);
    ahead.go_on_from(cursor);
  }

  // kStep elements of an output row as add_steps() keeps it, in order; its vectors are vec_stride
  // floats apart.
  static void load_output(const float* out, int64_t /*vec_stride*/, Vec* vecs) {
    vecs[0] = load(out);
  }
};

// Which rows a cache of element type T is read as; an instruction set's own come from a header
// between this one and decode-inl.hpp.
template <typename T>
struct RowsOf {
  using type = FloatRows<T>;
};

}  // namespace
}  // namespace rapt::cpu
