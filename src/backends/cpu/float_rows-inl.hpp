// Arithmetic of the decode kernel on rows of the cache, in fp32: any element type, any instruction
// set. Rows of K and V are given by their addresses, so that keys of one tile may lie in different
// pages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/look_ahead-inl.hpp"
#include "backends/cpu/visible-inl.hpp"

namespace rapt::cpu {
namespace {

// Accumulators that fit the registers beside their operands.
constexpr int kAccumulators = kWidth == 16 ? 16 : 8;

// The decode kernel takes keys in blocks of as many as a mask has bits.
constexpr int kBlockKeys = 32;
constexpr int kProbabilityStride = 2 * kBlockKeys;  // of a row

// A head's row at byte offset `offset` of what a token's pointer points to.
template <typename T>
inline const T* row_at(const std::byte* token, int64_t offset) {
  return reinterpret_cast<const T*>(token + offset);
}

// What a tile of output rows becomes: itself times decay, plus the values of num_keys tokens times
// each row's probabilities.
template <typename Probability>
struct WeightedValues {
  const float* decay;  // a row's; null = 1
  const Probability* probabilities;
  const std::byte* const* tokens;
  int num_keys;
  int64_t offset;          // of the head
  const std::byte* zeros;  // a row of them to fill up with (Bf16Rows)
};

// Rows are kept in tiles of kRows, or kTileRows where fewer of them take part: steps of kStep
// elements, and of each step those of all rows in turn.
template <typename T>
struct FloatRows {
  using Query = float;                  // how a query row is kept
  using Probability = float;            // how a probability is kept
  static constexpr int kStep = kWidth;  // rows are padded to a multiple of this

  // Row r of a tile of kRows query rows; `tile` is cleared.
  template <int kRows>
  static void store_query(float* tile, int r, const T* row, int dim) {
    for (int d = 0; d < dim; d += kStep)
      store(tile + d * kRows + r * kStep, load(row + d, first_lanes(smaller(kStep, dim - d))));
  }

  // Lane r * kKeys + k of the result is query row r times key k, for kRows * kKeys == kWidth.
  template <int kRows, int kKeys, typename Ahead>
  RAPT_ALWAYS_INLINE static Vec scores(const float* tile, const std::byte* const* keys,
                                       int64_t offset, int dim, Ahead& ahead) {
    Vec sums[kWidth];
    unroll<kWidth>([&](auto i) { sums[i] = zero(); });
    const auto step = [&](int d, auto... tail) RAPT_ALWAYS_INLINE {
      ahead.template keep_ahead<kKeys * kStep* int{sizeof(T)}>();
      Vec q[kRows];
      unroll<kRows>([&](auto r) { q[r] = load(tile + d * kRows + r * kStep); });
      unroll<kKeys>([&](auto k) {
        const Vec key = load(row_at<T>(keys[k], offset) + d, tail...);
        unroll<kRows>([&](auto r) { sums[r * kKeys + k] = fma(q[r], key, sums[r * kKeys + k]); });
      });
    };
    int d = 0;
    for (; d + kStep <= dim; d += kStep) step(d);
    if (d < dim) step(d, first_lanes(dim - d));
    return lane_sums(sums);
  }

  static Vec exp2(Vec x) { return exp2_accurate(x); }

  static void store_probabilities(float* out, const Vec* p, int count) {
    for (int i = 0; i < count; i++) store(out + i * kWidth, p[i]);
  }

  template <int kRows, int kTileRows, typename Ahead>
  RAPT_ALWAYS_INLINE static void accumulate(float* out, const WeightedValues<float>& values,
                                            int dim, Ahead& ahead) {
    constexpr int kMaxVecs = smaller(kAccumulators / kRows, 8);
    int d = 0;
    for (; d + kMaxVecs * kStep <= dim; d += kMaxVecs * kStep)
      add_vecs<kRows, kTileRows, kMaxVecs>(out, values, d, dim, ahead);
    if (d < dim) add_rest<kRows, kTileRows>(out, values, d, dim, ahead);
  }

  // The steps from d on that accumulate() doesn't take.
  template <int kRows, int kTileRows, typename Ahead>
  [[gnu::noinline]] static void add_rest(float* out, const WeightedValues<float>& values, int d,
                                         int dim, Ahead& ahead) {
    if constexpr (smaller(kAccumulators / kRows, 8) > 4)
      for (; d + 4 * kStep <= dim; d += 4 * kStep)
        add_vecs<kRows, kTileRows, 4>(out, values, d, dim, ahead);
    for (; d < dim; d += kStep) add_vecs<kRows, kTileRows, 1>(out, values, d, dim, ahead);
  }

  // kVecs steps from d on.
  template <int kRows, int kTileRows, int kVecs, typename Ahead>
  RAPT_ALWAYS_INLINE static void add_vecs(float* out, const WeightedValues<float>& values, int d,
                                          int dim, Ahead& ahead) {
    const auto vec = [&](int r, int i) { return out + (d + i * kWidth) * kTileRows + r * kWidth; };
    const int64_t offset = values.offset + d * int64_t{sizeof(T)};
    const Mask tail = first_lanes(smaller(kStep, dim - d));
    Vec sums[kRows][kVecs];
    unroll<kRows>([&](auto r) { unroll<kVecs>([&](auto i) { sums[r][i] = load(vec(r, i)); }); });
    if (values.decay)
      unroll<kRows>([&](auto r) {
        const Vec decay = set1(values.decay[r]);
        unroll<kVecs>([&](auto i) { sums[r][i] = sums[r][i] * decay; });
      });
    for (int k = 0; k < values.num_keys; k++) {
      ahead.template keep_ahead<kVecs * kStep* int{sizeof(T)}>();
      Vec p[kRows];
      unroll<kRows>(
          [&](auto r) { p[r] = broadcast(values.probabilities + r * kProbabilityStride + k); });
      unroll<kVecs>([&](auto i) {
        const T* at = row_at<T>(values.tokens[k], offset) + i * kStep;
        const Vec value = kVecs > 1 || d + kStep <= dim ? load(at) : load(at, tail);
        unroll<kRows>([&](auto r) { sums[r][i] = fma(p[r], value, sums[r][i]); });
      });
    }
    unroll<kRows>([&](auto r) { unroll<kVecs>([&](auto i) { store(vec(r, i), sums[r][i]); }); });
  }

  // kStep elements of an output row as accumulate() keeps it, in order; its vectors are vec_stride
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
