// The decode kernel's online softmax, in the tiles of rows-inl.hpp: what one row needs is found in
// the same instructions as what its neighbours need.
#pragma once

#include "backends/cpu/rows-inl.hpp"
#include "backends/cpu/softmax-inl.hpp"

namespace rapt::cpu {
namespace {

template <int kRows>
constexpr int kBlockTiles = kBlockKeys / kTileKeys<kRows>;

// Running state of kRows rows; a lane is of the row that it is of in a tile.
template <int kRows>
struct RowTile {
  static constexpr int kKeys = kTileKeys<kRows>;

  float maxima[kWidth];       // the same in all lanes of a row; -inf = no key yet
  float decays[kWidth];       // what the block before it decays by
  float sums[kRows][kWidth];  // of the probabilities of keys of equal position modulo kWidth

  void clear() {
    store(maxima, set1(kMinusInfinity));
    for (auto& sum : sums) store(sum, zero());
  }
  // In an order that doesn't depend on kRows.
  RowState of_row(int r) const {
    float in_order[kWidth];
    for (int i = 0; i < kWidth; i++) in_order[i] = sums[i / kKeys][r * kKeys + i % kKeys];
    return {maxima[r * kKeys], reduce_add(load(in_order))};
  }
};

// ALiBi of a tile's rows, each in its lanes; slopes of 0: none.
struct TileBias {
  float slopes[kWidth];
  int64_t positions[kWidth];  // of the query, relative to the block's first key
};

// Scores times scale, capped (softcap 0: not) and biased, in place.
template <int kRows>
[[gnu::noinline]] void adjust(float* scores, float scale, float softcap, const TileBias& bias) {
  for (int t = 0; t < kBlockTiles<kRows>; t++) {
    Vec x = load(scores + t * kWidth) * set1(scale);
    if (softcap != 0) x = tanh(x * set1(1 / softcap)) * set1(softcap);
    float distance[kWidth];
    for (int lane = 0; lane < kWidth; lane++) {
      // In two steps, alike for every kRows, since a long distance is rounded.
      const int key = t * kTileKeys<kRows> + lane % kTileKeys<kRows>;
      distance[lane] = static_cast<float>(key / kWidth * kWidth - bias.positions[lane]) +
                       static_cast<float>(key % kWidth);
    }
    store(scores + t * kWidth, x - abs(load(distance)) * load(bias.slopes));
  }
}

// Scores to probabilities relative to the rows' new maxima; what came before decays. `seen` has a
// tile's lanes that count as bits; null: all.
template <typename Rows, int kRows>
[[gnu::noinline]] void soften(RowTile<kRows>& rows, const float* scores, float scale,
                              const uint16_t* seen, typename Rows::Probability* probabilities) {
  constexpr int kTiles = kBlockTiles<kRows>;
  const Vec old_maxima = load(rows.maxima);
  Vec x[kTiles], top[2] = {old_maxima, old_maxima};
  unroll<kTiles>([&](auto t) {
    x[t] = load(scores + t * kWidth) * set1(scale);
    if (seen) x[t] = select(lanes_of(seen[t]), x[t], set1(kMinusInfinity));
    top[t % 2] = max(x[t], top[t % 2]);
  });
  const Vec maxima = group_max<kTileKeys<kRows>>(max(top[0], top[1]));
  // While a row has no key with a finite score there is nothing to weigh, and nothing to decay.
  const Vec reference = max(maxima, set1(-__FLT_MAX__));
  Vec totals[kRows];
  unroll<kTiles>([&](auto t) {
    x[t] = Rows::exp2((x[t] - reference) * set1(kLog2E));
    if constexpr (t < kRows)
      totals[t] = x[t];
    else
      totals[t % kRows] = totals[t % kRows] + x[t];
  });
  Rows::store_probabilities(probabilities, x);
  const Vec decays = select(less(old_maxima, maxima),
                            exp2_accurate((old_maxima - reference) * set1(kLog2E)), set1(1.0f));
  store(rows.maxima, maxima);
  store(rows.decays, decays);
  unroll<kRows>([&](auto r) { store(rows.sums[r], fma(load(rows.sums[r]), decays, totals[r])); });
}

}  // namespace
}  // namespace rapt::cpu
