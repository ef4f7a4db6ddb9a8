// Products of tiles, four results at a time, and what may run beside them.
#pragma once

#include "backends/cpu/amx_pack-inl.hpp"

namespace rapt::cpu {
namespace {

// Beside products that stand alone.
struct Nothing {
  static constexpr int kSteps = 1 << 30;
  void advance() {}
};

// Tiles 0 to 3: the products of two left tiles with two right tiles, 0 1 with the first of them,
// summed over steps of 32. In memory 0 1 and 2 3 are neighbours, kHomeStride tiles apart. There
// they go only when others take their turn, one by one between products: a tile store waits for its
// products, and four at a stretch would keep the processor from looking ahead.
class Accumulators {
 public:
  // What lies at `home`, or zero if not `resume`, += `steps` steps of products. Left tiles follow
  // one another, likewise right tiles. beside.advance() is called after each product, 16 cycles, of
  // the first Beside::kSteps steps.
  // Left tiles and sums are not used again soon: L1 is for right tiles, S and P.
  template <typename Beside>
  RAPT_ALWAYS_INLINE void add(float* home, bool resume, const BFloat* left0, const BFloat* left1,
                              const BFloat* right0, const BFloat* right1, int steps,
                              Beside& beside) {
    tile_load_past_l1<4>(left0, kTileBytes);
    tile_load<6>(right0, kTileBytes);
    enter<0>(home, resume);
    tile_dot_bf16<0, 4, 6>();
    beside.advance();
    tile_load_past_l1<5>(left1, kTileBytes);
    enter<1>(home, resume);
    tile_dot_bf16<1, 5, 6>();
    beside.advance();
    tile_load<7>(right1, kTileBytes);
    enter<2>(home, resume);
    tile_dot_bf16<2, 4, 7>();
    beside.advance();
    enter<3>(home, resume);
    tile_dot_bf16<3, 5, 7>();
    beside.advance();
    home_ = home;
    int i = 1;
    for (; i < smaller(steps, Beside::kSteps); i++)
      add_step(left0, left1, right0, right1, i * kTileElements, beside);
    Nothing nothing;
    for (; i < steps; i++) add_step(left0, left1, right0, right1, i * kTileElements, nothing);
  }
  // Stores what is not at home.
  void flush() {
    leave<0>(), leave<1>(), leave<2>(), leave<3>();
    home_ = nullptr;
  }

 private:
  template <typename Beside>
  RAPT_ALWAYS_INLINE static void add_step(const BFloat* left0, const BFloat* left1,
                                          const BFloat* right0, const BFloat* right1, int at,
                                          Beside& beside) {
    tile_load_past_l1<4>(left0 + at, kTileBytes);
    tile_load_past_l1<5>(left1 + at, kTileBytes);
    tile_load<6>(right0 + at, kTileBytes);
    tile_load<7>(right1 + at, kTileBytes);
    tile_dot_bf16<0, 4, 6>();
    beside.advance();
    tile_dot_bf16<1, 5, 6>();
    beside.advance();
    tile_dot_bf16<2, 4, 7>();
    beside.advance();
    tile_dot_bf16<3, 5, 7>();
    beside.advance();
  }

  template <int kTile>
  static constexpr int kPlace = (kTile / 2 * kHomeStride + kTile % 2) * kTileFloats;

  template <int kTile>
  void leave() const {
    if (home_) tile_store<kTile>(home_ + kPlace<kTile>, kTileBytes);
  }
  template <int kTile>
  void enter(const float* home, bool resume) const {
    leave<kTile>();
    if (resume)
      tile_load_past_l1<kTile>(home + kPlace<kTile>, kTileBytes);
    else
      tile_zero<kTile>();
  }

  float* home_ = nullptr;  // of all four; null: stored, or not begun
};

}  // namespace
}  // namespace rapt::cpu
