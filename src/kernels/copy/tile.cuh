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

// A struct of whole 16 bytes, at a multiple of 16.
template <class T>
DEVICE void copy_to_shared(T& to, const T* from) {
  static_assert(sizeof(T) % 16 == 0);
#pragma unroll
  for (u32 at = 0; at < sizeof(T); at += 16)
    store_shared_16(shared_address(&to) + at,
                    load_global_16(reinterpret_cast<const u8*>(from) + at));
}

// [kRows, kDim] in chunks of 16 bytes. A chunk's place depends on its row, so that the same chunk
// of eight rows, which ldmatrix reads at once, lies in different banks.
template <int kNumRows, int kDim>
struct alignas(128) Tile {
  static constexpr int kRows = kNumRows, kChunks = ceil_div(kDim, 8);
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

// Of a row that is not to be read. A multiple of 16, as addresses are.
constexpr i64 kNoRow = -(i64{1} << 62);

// Starts copying rows into a tile: row r + f lies offset_of(r, f) bytes from `base`, or is zeros
// where that is negative; f is a constant. Columns past the tile's become zeros up to kUsedChunks.
// kAtOnce offsets are known before the first of their copies starts: twice as many registers.
template <int kThreads, class T, int kAtOnce = 8, typename OffsetOf>
DEVICE void copy_rows(u32 tile, const u8* base, const OffsetOf& offset_of) {
  constexpr int kCopies = T::kRows * T::kUsedChunks, kPasses = ceil_div(kCopies, kThreads);
  // Threads stay at their chunk, from row to row, if their number allows it; then so does the place
  // of a chunk in its row, but for a constant.
  constexpr int kStep = kThreads % T::kUsedChunks == 0 ? kThreads / T::kUsedChunks : 0;
  constexpr bool kStays = kStep > 0 && (kStep % 8 == 0 || 8 % kStep == 0);
  const u32 thread = anew(thread_index());
  const u32 first_row = thread / T::kUsedChunks, first_chunk = thread % T::kUsedChunks;
  const u32 first_to = tile + T::offset(static_cast<int>(first_row), static_cast<int>(first_chunk));
#pragma unroll
  for (int pass = 0; pass < kPasses; pass += kAtOnce) {
    i64 offsets[kAtOnce];
    const auto row_of = [&](int i) -> u32 {
      return kStays ? first_row : ((pass + i) * kThreads + thread) / T::kUsedChunks;
    };
    const auto is_one = [&](int i) {
      return pass + i < kPasses &&
             (kCopies % kThreads == 0 || (pass + i) * kThreads + thread < kCopies);
    };
#pragma unroll
    for (int i = 0; i < kAtOnce; i++)
      if (is_one(i))
        offsets[i] = offset_of(static_cast<int>(row_of(i)), kStays ? (pass + i) * kStep : 0);
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      if (!is_one(i)) continue;
      u32 chunk = first_chunk, to;
      if constexpr (kStays) {
        const int further = (pass + i) * kStep;
        to = (first_to ^ (further % 8 * 16)) + further * T::kRowBytes;
      } else {
        chunk = ((pass + i) * kThreads + thread) % T::kUsedChunks;
        to = tile + T::offset(static_cast<int>(row_of(i)), static_cast<int>(chunk));
      }
      const int sign = static_cast<int>(offsets[i] >> 32);
      copy_async_16(to, base + offsets[i] + 16 * chunk,
                    chunk < static_cast<u32>(T::kChunks) ? sign : -1);
    }
  }
}

}  // namespace rapt::device
