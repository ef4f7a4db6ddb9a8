// Rows of 16-bit elements in shared memory, and how they get there.
#pragma once

#include "ptx/copy.cuh"
#include "ptx/threads.cuh"

namespace rapt::device {

constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}
constexpr int round_up(int a, int b) {
  return ceil_div(a, b) * b;
}

// [kRows, kDim] in chunks of 16 bytes. A chunk's place depends on its row, so that the same chunk
// of eight rows, which ldmatrix reads at once, lies in different banks.
template <int kRows, int kDim>
struct alignas(128) Tile {
  static constexpr int kChunks = ceil_div(kDim, 8);
  static constexpr int kUsedChunks = round_up(kChunks, 2);  // products take 16 elements at a time
  static constexpr u32 kRowBytes = 16 * round_up(kChunks, 8);

  unsigned char bytes[kRows * kRowBytes];

  static METHOD u32 offset(int row, int chunk) {
    return row * kRowBytes + ((chunk & ~7) | ((chunk ^ row) & 7)) * 16;
  }
  // The address of chunk `chunk` of row `row`, which a lane keeps; of an even number of chunks and
  // a multiple of 8 rows further on it is one exclusive or and one constant away.
  static METHOD u32 further(u32 address, int rows, int chunks) {
    return (address ^ ((chunks & 7) * 16)) + (chunks & ~7) * 16 + rows * kRowBytes;
  }
};

// Starts copying rows into a tile: row r comes from source(r), or is zeros where that is null.
// Columns past kDim become zeros up to kUsedChunks.
template <int kThreads, int kRows, int kDim, typename Source>
DEVICE void copy_rows(u32 tile, const void* anywhere, const Source& source) {
  using T = Tile<kRows, kDim>;
  constexpr int kPasses = ceil_div(kRows * T::kUsedChunks, kThreads);
#pragma unroll
  for (int pass = 0; pass < kPasses; pass++) {
    const int i = pass * kThreads + static_cast<int>(thread_index());
    if (kRows * T::kUsedChunks % kThreads != 0 && i >= kRows * T::kUsedChunks) break;
    const int row = i / T::kUsedChunks, chunk = i % T::kUsedChunks;
    const unsigned char* from = source(row);
    const bool reads = from != nullptr && chunk < T::kChunks;
    copy_async_16(tile + T::offset(row, chunk), reads ? from + 16 * chunk : anywhere,
                  reads ? 16 : 0);
  }
}

}  // namespace rapt::device
