// Products of tiles in shared memory by mma.sync, one warp's rows at a time.
//
// Fragments are those of PTX ISA 9.7.14.5.8 (m16n8k16): of a result, lane l holds of rows l / 4 and
// l / 4 + 8 the columns 2 * (l % 4) and the next: d[0], d[1] and d[2], d[3].
#pragma once

#include "copy/tile.cuh"
#include "ptx/matrix.cuh"

namespace rapt::device {

// Result tiles [first, first + kPart).
template <int kPart, int kTiles>
DEVICE float (&part(float (&tiles)[kTiles][4], int first))[kPart][4] {
  return reinterpret_cast<float(&)[kPart][4]>(tiles[first]);
}

// A tile's operands are read through one address a lane, which left_lane(), right_lane() or
// right_transposed_lane() gives: of the first 16 rows from `row` on. It is made anew for each use:
// a few instructions for a register that sums need.

// The left operand: rows [row + rows, + 16), elements [16 * step, + 16).
template <typename T>
DEVICE u32 left_lane(u32 tile, int row) {
  const u32 lane = lane_index();
  return tile + T::offset(row + static_cast<int>(lane % 16), static_cast<int>(lane / 16));
}
template <typename T>
DEVICE void load_left(u32 (&a)[4], u32 lane, int rows, int step) {
  load_matrices(a, T::further(lane, rows, 2 * step));
}

// The right operand: b[n] of rows [16 * step, + 16), columns [8 * (first + n), + 8); first is even.
template <typename T>
DEVICE u32 right_lane(u32 tile) {
  const u32 lane = anew(lane_index());
  return tile + T::offset(static_cast<int>(lane % 16), static_cast<int>(lane / 16));
}
template <typename T, int kColumns>
DEVICE void load_right(u32 (&b)[kColumns][2], u32 lane, int step, int first) {
  static_assert(kColumns % 2 == 0);
#pragma unroll
  for (int n = 0; n < kColumns; n += 2) {
    u32 r[4];
    load_matrices_transposed(r, T::further(lane, 16 * step, first + n));
    b[n][0] = r[0], b[n][1] = r[1], b[n + 1][0] = r[2], b[n + 1][1] = r[3];
  }
}

// The same of the transposed tile: b[n] of its rows [8 * (first + n), + 8), elements
// [16 * step, + 16).
template <typename T>
DEVICE u32 right_transposed_lane(u32 tile) {
  const u32 lane = anew(lane_index());
  return tile +
         T::offset(static_cast<int>(lane / 16 * 8 + lane % 8), static_cast<int>(lane / 8 % 2));
}
template <typename T, int kColumns>
DEVICE void load_right_transposed(u32 (&b)[kColumns][2], u32 lane, int step, int first) {
  static_assert(kColumns % 2 == 0);
#pragma unroll
  for (int n = 0; n < kColumns; n += 2) {
    u32 r[4];
    load_matrices(r, T::further(lane, 8 * (first + n), 2 * step));
    b[n][0] = r[0], b[n][1] = r[1], b[n + 1][0] = r[2], b[n + 1][1] = r[3];
  }
}

}  // namespace rapt::device
