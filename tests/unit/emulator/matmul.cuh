// c[rows x columns] = a[rows x depth] b[depth x columns], row-major, fp32 out: a small kernel with
// the parts of a real one, and deliberate faults that the emulator must find.
//
// A block of two warps computes a 32 x 32 tile of c, in steps of 32 of the depth. Each step's tiles
// of a and b, 32 x 32 elements, are copied to shared memory while the step before is multiplied.
// Their rows of four 16-byte chunks are swizzled: chunk c of row r is at c ^ (r / 2 % 4), so that
// the eight rows of an ldmatrix fall in different banks.
#pragma once
#include "ptx/copy.cuh"
#include "ptx/matrix.cuh"
#include "ptx/threads.cuh"

namespace rapt::device {

constexpr u32 kTile = 32, kChunkElems = 8, kRowChunks = kTile / kChunkElems;
constexpr u32 kMatmulThreads = 64;

struct MatmulParams {
  const u16* a;
  const u16* b;
  float* c;
  u32 rows, columns, depth;  // columns and depth are multiples of 8
};

struct MatmulShared {
  Quad a[2][kTile][kRowChunks];
  Quad b[2][kTile][kRowChunks];
};

enum class Fault {
  kNone,
  kWaitsForOneLess,
  kNoBarrierBeforeUse,
  kNoBarrierBeforeReuse,
  kOneBuffer,
  kCopiesRowsBehindTheEnd,
  kLeavesRowsBehindTheEnd,
  kOneWarpSkipsTheLastBarrier,
  kHalfAWarpMultiplies,
  kNoSwizzleOnLoad,
  kSwapsFragments,
  kStoresColumnsBehindTheEnd,
};

DEVICE u32 chunk_address(u32 tile, u32 row, u32 chunk) {
  return tile + (row * kRowChunks + (chunk ^ (row / 2 % kRowChunks))) * sizeof(Quad);
}

// Starts the copy of a 32 x 32 tile whose first element is (row, column) of a matrix.
template <Fault kFault>
DEVICE void copy_tile(u32 tile, const u16* matrix, u32 rows, u32 columns, u32 row, u32 column) {
  for (u32 i = thread_index(); i < kTile * kRowChunks; i += kMatmulThreads) {
    const u32 r = row + i / kRowChunks, c = column + i % kRowChunks * kChunkElems;
    bool inside = r < rows && c < columns;
    if (kFault == Fault::kCopiesRowsBehindTheEnd) inside = true;
    if (kFault == Fault::kLeavesRowsBehindTheEnd && !inside) continue;
    copy_async_16(chunk_address(tile, i / kRowChunks, i % kRowChunks),
                  inside
                      ? matrix + r * columns + c
                      : matrix + (kFault == Fault::kCopiesRowsBehindTheEnd ? r * columns + c : 0),
                  inside ? 0 : -1);
  }
}

template <class Element, Fault kFault>
GLOBAL void LAUNCH_BOUNDS(kMatmulThreads) matmul(const GRID_CONSTANT MatmulParams p) {
  MatmulShared& shared = *shared_base<MatmulShared>();
  const u32 row = block_index_y() * kTile, column = block_index_x() * kTile;
  const u32 lane = lane_index(), warp = warp_index();
  const u32 num_steps = (p.depth + kTile - 1) / kTile;
  const auto copy_step = [&](u32 step) {
    const u32 buffer = kFault == Fault::kOneBuffer ? 0 : step % 2, depth = step * kTile;
    copy_tile<kFault>(shared_address(shared.a[buffer]), p.a, p.rows, p.depth, row, depth);
    copy_tile<kFault>(shared_address(shared.b[buffer]), p.b, p.depth, p.columns, depth, column);
  };

  copy_step(0);
  copy_async_commit();
  float c[4][4] = {};
  for (u32 step = 0; step < num_steps; ++step) {
    if (step + 1 < num_steps) copy_step(step + 1);
    copy_async_commit();  // an empty group at the end, so that the wait always leaves one
    copy_async_wait<kFault == Fault::kWaitsForOneLess ? 2 : 1>();
    if (kFault != Fault::kNoBarrierBeforeUse) sync_block();

    const u32 buffer = kFault == Fault::kOneBuffer ? 0 : step % 2;
    const u32 tile_a = shared_address(shared.a[buffer]), tile_b = shared_address(shared.b[buffer]);
    for (u32 k = 0; k < kTile; k += 16) {
      u32 a[4], b[4][2];
      load_matrices(a, chunk_address(tile_a, warp * 16 + lane % 16, k / kChunkElems + lane / 16));
      for (u32 pair = 0; pair < 2; ++pair) {
        u32 r[4];
        const u32 k_row = k + lane % 16, chunk = pair * 2 + lane / 16;
        load_matrices_transposed(r, kFault == Fault::kNoSwizzleOnLoad
                                        ? tile_b + (k_row * kRowChunks + chunk) * 16
                                        : chunk_address(tile_b, k_row, chunk));
        const u32 low = kFault == Fault::kSwapsFragments ? 1 : 0;
        b[pair * 2][0] = r[low];
        b[pair * 2][1] = r[1 - low];
        b[pair * 2 + 1][0] = r[2];
        b[pair * 2 + 1][1] = r[3];
      }
      if (kFault != Fault::kHalfAWarpMultiplies || lane < 16) multiply_row<Element, 4>(c, a, b);
    }
    const bool skips =
        kFault == Fault::kOneWarpSkipsTheLastBarrier && warp && step + 1 == num_steps;
    if (kFault != Fault::kNoBarrierBeforeReuse && !skips) sync_block();
  }
  copy_async_wait<0>();

  for (u32 i = 0; i < 4; ++i)
    for (u32 j = 0; j < 4; ++j) {
      const u32 r = row + warp * 16 + lane / 4 + j / 2 * 8;
      const u32 col = column + i * 8 + lane % 4 * 2 + j % 2;
      const bool inside = col < p.columns || kFault == Fault::kStoresColumnsBehindTheEnd;
      if (r < p.rows && inside) store_global_f32(p.c + r * p.columns + col, c[i][j]);
    }
}

}  // namespace rapt::device
