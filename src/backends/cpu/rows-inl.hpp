// The decode kernel's two products, over what says how rows of a cache are multiplied: FloatRows
// and Bf16Rows. Rows of K and V are given by their addresses, so that keys of one tile may lie in
// different pages.
//
// Query and output rows are kept in tiles of kRows, or kTileRows where fewer of them take part:
// steps of Rows::kStep elements, and of each step those of all rows in turn.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/look_ahead-inl.hpp"
#include "backends/cpu/visible-inl.hpp"

namespace rapt::cpu {
namespace {

// The decode kernel takes keys in blocks of as many as a mask has bits.
constexpr int kBlockKeys = 32;

// Scores and probabilities of kRows rows are kept in tiles of kTileKeys keys: element (k /
// kTileKeys)
// * kWidth + r * kTileKeys + k % kTileKeys is of row r and key k of the block.
template <int kRows>
constexpr int kTileKeys = kWidth / kRows;
template <int kRows>
constexpr int tile_place(int row, int key) {
  constexpr unsigned kKeys = kTileKeys<kRows>;  // a power of 2, of what is not negative
  const auto k = static_cast<unsigned>(key);
  return static_cast<int>(k / kKeys * kWidth + k % kKeys) + row * kTileKeys<kRows>;
}

// A head's row at byte offset `offset` of what a token's pointer points to.
template <typename T>
inline const T* row_at(const std::byte* token, int64_t offset) {
  return reinterpret_cast<const T*>(token + offset);
}

// Lane r * kTileKeys + k of the result is query row r times key k.
template <typename Rows, int kRows, typename Ahead>
RAPT_ALWAYS_INLINE inline Vec score_tile(const typename Rows::Query* tile,
                                         const std::byte* const* keys, int64_t offset, int dim,
                                         Ahead& ahead) {
  using T = typename Rows::Element;
  constexpr int kStep = Rows::kStep, kKeys = kTileKeys<kRows>;
  Ahead cursor = ahead;
  Vec sums[kWidth];
  unroll<kWidth>([&](auto i) { sums[i] = zero(); });
  const auto step = [&](int d, auto... num_elements) RAPT_ALWAYS_INLINE {
    const typename Ahead::template Ask<kKeys * kStep* int{sizeof(T)}> ask(cursor);
    typename Rows::Operand q[kRows];
    unroll<kRows>([&](auto r) { q[r] = Rows::load_query(tile + d * kRows + r * kStep); });
    unroll<kKeys>([&](auto k) {
      const auto key = Rows::load_key(row_at<T>(keys[k], offset) + d, num_elements...);
      ask.template share<k, kKeys>();
      unroll<kRows>(
          [&](auto r) { sums[r * kKeys + k] = Rows::multiply(sums[r * kKeys + k], q[r], key); });
    });
  };
  int d = 0;
  for (; d + kStep <= dim; d += kStep) step(d);
  if (d < dim) step(d, dim - d);
  ahead.go_on_from(cursor);
  return lane_sums(sums);
}

// What a tile of output rows becomes: itself times decay, plus the values of num_keys tokens, from
// key `first_key` of the block on, times each row's probabilities.
template <typename Probability>
struct WeightedValues {
  const float* decay;  // a row's, kTileKeys lanes apart; null = 1
  const Probability* probabilities;
  int first_key;
  const std::byte* const* tokens;
  int num_keys;
  int64_t offset;          // of the head
  const std::byte* zeros;  // a row of them to fill up with (Bf16Rows)
};

// kVecs vectors of each of kRows output rows, in registers.
template <int kRows, int kTileRows, int kVecs>
struct OutputTile {
  Vec sums[kRows][kVecs];

  // `out` is where they lie.
  RAPT_ALWAYS_INLINE OutputTile(const float* out, const float* decay) {
    each([&](auto r, auto i) { sums[r][i] = load(out + place(r, i)); });
    if (decay)
      each([&](auto r, auto i) { sums[r][i] = sums[r][i] * set1(decay[r * kTileKeys<kRows>]); });
  }
  RAPT_ALWAYS_INLINE void write(float* out) const {
    each([&](auto r, auto i) { store(out + place(r, i), sums[r][i]); });
  }

 private:
  static constexpr int place(int r, int i) { return (i * kTileRows + r) * kWidth; }
  template <typename Body>
  RAPT_ALWAYS_INLINE static void each(const Body& body) {
    unroll<kRows>([&](auto r) { unroll<kVecs>([&](auto i) { body(r, i); }); });
  }
};

// The steps from d on that accumulate() doesn't take.
template <typename Rows, int kRows, int kTileRows, typename Ahead>
[[gnu::noinline]] void accumulate_rest(float* out,
                                       const WeightedValues<typename Rows::Probability>& values,
                                       int d, int dim, Ahead& ahead) {
  constexpr int kHalf = Rows::template kMostSteps<kRows> / 2;
  if constexpr (kHalf > 1)
    for (; d + kHalf * Rows::kStep <= dim; d += kHalf * Rows::kStep)
      Rows::template add_steps<kRows, kTileRows, kHalf>(out, values, d, dim, ahead);
  for (; d < dim; d += Rows::kStep)
    Rows::template add_steps<kRows, kTileRows, 1>(out, values, d, dim, ahead);
}

// Adds to kRows rows of a tile, as many steps at a time as registers hold.
template <typename Rows, int kRows, int kTileRows, typename Ahead>
RAPT_ALWAYS_INLINE inline void accumulate(float* out,
                                          const WeightedValues<typename Rows::Probability>& values,
                                          int dim, Ahead& ahead) {
  constexpr int kSteps = Rows::template kMostSteps<kRows>;
  int d = 0;
  for (; d + kSteps * Rows::kStep <= dim; d += kSteps * Rows::kStep)
    Rows::template add_steps<kRows, kTileRows, kSteps>(out, values, d, dim, ahead);
  if (d < dim) accumulate_rest<Rows, kRows, kTileRows>(out, values, d, dim, ahead);
}

}  // namespace
}  // namespace rapt::cpu
