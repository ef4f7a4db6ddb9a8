// Arithmetic of the decode kernel on rows of the cache, in fp32: any element type, any instruction
// set. Rows of K and V are given by their addresses, so that keys of one tile may lie in different
// pages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/visible-inl.hpp"

namespace rapt::cpu {
namespace {

// Accumulators that fit the registers beside their operands.
constexpr int kAccumulators = kWidth == 16 ? 16 : 8;

// A head's row at byte offset `offset` of what a token's pointer points to.
template <typename T>
inline const T* row_at(const std::byte* token, int64_t offset) {
  return reinterpret_cast<const T*>(token + offset);
}

template <typename T>
struct FloatRows {
  using Query = float;                       // how a query row is kept
  using Probability = float;                 // how a probability is kept
  static constexpr int kValueStep = kWidth;  // output rows are padded to a multiple of this

  static void store_query(float* query, const T* row, int dim) {
    int d = 0;
    for (; d + kWidth <= dim; d += kWidth) store(query + d, load(row + d));
    if (d < dim) store(query + d, load(row + d, first_lanes(dim - d)));
  }

  // Lane r * kKeys + k of the result is query row r times key k, for kRows * kKeys == kWidth.
  template <int kRows, int kKeys>
  static Vec scores(const float* query, int64_t query_stride, const std::byte* const* keys,
                    int64_t offset, int dim) {
    Vec sums[kWidth];
#pragma GCC unroll 16
    for (Vec& sum : sums) sum = zero();
    int d = 0;
    for (; d + kWidth <= dim; d += kWidth) {
      Vec key[kKeys];
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; k++) key[k] = load(row_at<T>(keys[k], offset) + d);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r++) {
        const Vec q = load(query + r * query_stride + d);
#pragma GCC unroll 16
        for (int k = 0; k < kKeys; k++) sums[r * kKeys + k] = fma(q, key[k], sums[r * kKeys + k]);
      }
    }
    if (d < dim) {
      const Mask tail = first_lanes(dim - d);
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; k++) {
        const Vec key = load(row_at<T>(keys[k], offset) + d, tail);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; r++)
          sums[r * kKeys + k] = fma(load(query + r * query_stride + d), key, sums[r * kKeys + k]);
      }
    }
    return lane_sums(sums);
  }

  static void store_probabilities(float* out, const Vec* p, int count) {
    for (int i = 0; i < count; i++) store(out + i * kWidth, p[i]);
  }

  // out[r] = out[r] * decay[r] + sum over keys of probability[r][k] * value[k], for kRows rows.
  // `zeros` is a row of zeros to fill up with (Bf16Rows).
  template <int kRows, typename Prefetch>
  static void accumulate(float* out, int64_t out_stride, const float* decay,
                         const float* probability, int64_t probability_stride,
                         const std::byte* const* values, int num_keys, int64_t offset, int dim,
                         const std::byte* /*zeros*/, Prefetch prefetch) {
    constexpr int kMaxVecs = kAccumulators / kRows < 8 ? kAccumulators / kRows : 8;
    int d = 0;
    for (; d + kMaxVecs * kWidth <= dim; d += kMaxVecs * kWidth)
      accumulate_vecs<kRows, kMaxVecs>(out + d, out_stride, decay, probability, probability_stride,
                                       values, num_keys, offset + d * int64_t{sizeof(T)}, prefetch);
    if constexpr (kMaxVecs > 4)
      for (; d + 4 * kWidth <= dim; d += 4 * kWidth)
        accumulate_vecs<kRows, 4>(out + d, out_stride, decay, probability, probability_stride,
                                  values, num_keys, offset + d * int64_t{sizeof(T)}, prefetch);
    for (; d + kWidth <= dim; d += kWidth)
      accumulate_vecs<kRows, 1>(out + d, out_stride, decay, probability, probability_stride, values,
                                num_keys, offset + d * int64_t{sizeof(T)}, prefetch);
    if (d == dim) return;
    const Mask tail = first_lanes(dim - d);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++) {
      Vec sum = load(out + r * out_stride + d) * set1(decay[r]);
      for (int k = 0; k < num_keys; k++)
        sum = fma(broadcast(probability + r * probability_stride + k),
                  load(row_at<T>(values[k], offset) + d, tail), sum);
      store(out + r * out_stride + d, sum);
    }
  }

  template <int kRows, int kVecs, typename Prefetch>
  static void accumulate_vecs(float* out, int64_t out_stride, const float* decay,
                              const float* probability, int64_t probability_stride,
                              const std::byte* const* values, int num_keys, int64_t offset,
                              Prefetch prefetch) {
    Vec sums[kRows][kVecs];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 16
      for (int i = 0; i < kVecs; i++)
        sums[r][i] = load(out + r * out_stride + i * kWidth) * set1(decay[r]);
    constexpr int kLines = static_cast<int>(kVecs * kWidth * sizeof(T) + 63) / 64;
    for (int k = 0; k < num_keys; k++) {
      prefetch(kLines);  // as many as are read here
      Vec value[kVecs];
#pragma GCC unroll 16
      for (int i = 0; i < kVecs; i++) value[i] = load(row_at<T>(values[k], offset) + i * kWidth);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r++) {
        const Vec p = broadcast(probability + r * probability_stride + k);
#pragma GCC unroll 16
        for (int i = 0; i < kVecs; i++) sums[r][i] = fma(p, value[i], sums[r][i]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 16
      for (int i = 0; i < kVecs; i++) store(out + r * out_stride + i * kWidth, sums[r][i]);
  }

  // kValueStep elements of an output row as accumulate() keeps it, in order.
  static void load_output(const float* out, Vec* vecs) {
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
