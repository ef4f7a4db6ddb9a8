// The names of simd/tile.hpp in plain code, so that what is written for AMX runs, and is tested, on
// processors without it. Tiles hold NaN until they are loaded or zeroed, and outside begin/end.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/elements.hpp"
#include "backends/cpu/simd/tile_shape.hpp"

namespace rapt::cpu {
namespace {

union TileRow {
  float floats[16];
  uint32_t pairs[16];
};
struct Tile {
  TileRow rows[kTileRows];
  TileShape shape;
};
thread_local Tile tiles[8];

inline bool tiles_permitted() {
  return true;
}
inline void poison_tiles() {
  for (Tile& tile : tiles)
    for (TileRow& row : tile.rows)
      for (uint32_t& pair : row.pairs) pair = 0x7fc07fc0;
}
inline void begin_tiles(const TileShape (&shapes)[8]) {
  poison_tiles();
  for (int i = 0; i < 8; i++) tiles[i].shape = shapes[i];
}
inline void end_tiles() {
  poison_tiles();
}

template <int kTile>
inline void tile_zero() {
  __builtin_memset(tiles[kTile].rows, 0, sizeof tiles[kTile].rows);
}
template <int kTile>
inline void tile_load(const void* from, int64_t stride) {
  Tile& tile = tiles[kTile];
  for (int m = 0; m < tile.shape.rows; m++)
    __builtin_memcpy(&tile.rows[m], static_cast<const char*>(from) + m * stride,
                     static_cast<size_t>(tile.shape.row_bytes));
}
template <int kTile>
inline void tile_load_past_l1(const void* from, int64_t stride) {
  tile_load<kTile>(from, stride);
}
template <int kTile>
inline void tile_store(void* to, int64_t stride) {
  const Tile& tile = tiles[kTile];
  for (int m = 0; m < tile.shape.rows; m++)
    __builtin_memcpy(static_cast<char*>(to) + m * stride, &tile.rows[m],
                     static_cast<size_t>(tile.shape.row_bytes));
}

inline float first_of_pair(uint32_t bits) {
  return __builtin_bit_cast(float, bits << 16);
}
inline float second_of_pair(uint32_t bits) {
  return __builtin_bit_cast(float, bits & 0xffff0000u);
}

template <int kC, int kA, int kB>
inline void tile_dot_bf16() {
  for (int m = 0; m < tiles[kA].shape.rows; m++)
    for (int k = 0; k < tiles[kB].shape.rows; k++) {
      const uint32_t a = tiles[kA].rows[m].pairs[k];
      for (int n = 0; n < tiles[kB].shape.row_bytes / 4; n++) {
        const uint32_t b = tiles[kB].rows[k].pairs[n];
        float& c = tiles[kC].rows[m].floats[n];
        c = __builtin_fmaf(first_of_pair(a), first_of_pair(b), c);
        c = __builtin_fmaf(second_of_pair(a), second_of_pair(b), c);
      }
    }
}

}  // namespace
}  // namespace rapt::cpu
