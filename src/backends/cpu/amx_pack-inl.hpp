// What the AMX kernel keeps in memory: everything in tiles of 1 KB, so that each tile load reads 16
// neighbouring cache lines. K and V become left operands (rows: 16 keys, 16 dims), Q and P right
// operands (columns: 16 rows of the pass), S and O results with those columns.
#pragma once

#include "backends/cpu/pack-inl.hpp"
#include "backends/cpu/softmax-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr int kPairs = 16;                      // of bf16 in a row of a tile
constexpr int kTileFloats = kTileRows * 16;     // of S and O
constexpr int kTileElements = 2 * kTileFloats;  // of K, V, Q and P
constexpr int kKeyGroup = 32;                   // two tiles of K, one of V
constexpr int kRowGroup = 32;                   // two tiles of Q
// From a row tile's S or O to the other's, in tiles. Two slots of S, and two pairs of O, lie one in
// the other: softmax reads S at other offsets of a page than those where tiles are being stored,
// and need not wait for them.
constexpr int kHomeStride = 4;
constexpr int kKeyBlock = 128;  // keys between two times that O is taken up
constexpr int kBlockGroups = kKeyBlock / kKeyGroup;
// Of packed K and V, which stay in L2: beside Q and O of all rows, or, if these are all the keys,
// beside those of one group of rows.
constexpr int kChunkBytes = 512 * 1024, kWholeBytes = 1024 * 1024;

struct AmxScratch {
  int chunk, whole;       // keys: multiples of kKeyBlock
  int steps;              // tiles of a query's or key's dims
  int dim_pairs;          // of tiles of a value's dims
  int max_rows;           // of a pass
  BFloat* keys;           // [whole / 16][steps] tiles
  BFloat* values;         // [whole / kKeyBlock][dim_pairs][2][kBlockGroups]
  BFloat* queries;        // [max_rows / 16][steps]
  float* scores;          // [2 row tiles][2 slots][2 key tiles]
  BFloat* probabilities;  // [2 slots][2 row tiles][kBlockGroups]
  float* outputs;         // [max_rows / 32][dim_pairs / 2][2 row tiles][2][2]
  float* lines;           // [16][dim_pairs * 32]: rows of O on their way out as a partial result
  // [max_rows]: a row's RowState, the maximum in log2 units; the sum of its rounded probabilities.
  float *max, *sum, *rounded_sum;
  Row* rows;
  const BFloat** sources;  // [max_rows]: where a row's Q is,
  BFloat** targets;        // and where its result goes; null of rows that only fill a group up
  uint32_t* seen;
  size_t bytes;

  AmxScratch(const Problem& problem, std::byte* base) {
    steps = (problem.head_dim_qk + 2 * kPairs - 1) / (2 * kPairs);
    dim_pairs = (problem.head_dim_vo + 31) / 32;
    const int key_bytes = 2 * (2 * kPairs * steps + 32 * dim_pairs);
    chunk = larger(kChunkBytes / key_bytes / kKeyBlock, 1) * kKeyBlock;
    whole = larger(kWholeBytes / key_bytes / kKeyBlock, 1) * kKeyBlock;
    max_rows = larger(kStateBytes / (128 * dim_pairs) / kRowGroup, 1) * kRowGroup;
    bytes = 0;
    const auto place = [&]<typename U>(U*& pointer, size_t count) {
      pointer = base ? reinterpret_cast<U*>(base + bytes) : nullptr;
      bytes += (count * sizeof(U) + 63) / 64 * 64;
    };
    place(keys, size_t{1} * whole / 16 * steps * kTileElements);
    place(values, size_t{2} * whole / 32 * dim_pairs * kTileElements);
    place(queries, size_t{1} * max_rows / 16 * steps * kTileElements);
    place(scores, size_t{8} * kTileFloats);
    place(probabilities, size_t{4} * kBlockGroups * kTileElements);
    place(outputs, size_t{2} * max_rows / 16 * round_up_to(dim_pairs, 2) * kTileFloats);
    place(lines, size_t{16} * 32 * dim_pairs);
    place(max, max_rows);
    place(sum, max_rows);
    place(rounded_sum, max_rows);
    place(rows, max_rows);
    place(sources, max_rows);
    place(targets, max_rows);
    place(seen, (whole + 31) / 32);
  }
};

alignas(64) constexpr BFloat kZeroRow[512] = {};  // the largest head dim

// Where K and V of a group of keys lie; a row of zeros for those that are not there.
struct KeyGroup {
  const BFloat *keys[kKeyGroup], *values[kKeyGroup];

  KeyGroup(const Problem& problem, const Request& request, int head, const KeyBlock& chunk,
           int first) {
    const int page_size = problem.page_size;
    int page = request.pages ? first / page_size : 0;
    int slot = request.pages ? first % page_size : first;
    for (int i = 0; i < kKeyGroup; i++, slot++) {
      if (request.pages && slot == page_size) slot = 0, page++;
      keys[i] = values[i] = kZeroRow;
      if (!chunk.has(first + i)) continue;
      const auto row = [&](const std::byte* base, int64_t page_stride, int64_t token_stride,
                           int64_t head_stride) {
        const int64_t run =
            request.pages ? request.pages[page] * page_stride : request.kv_start * token_stride;
        return reinterpret_cast<const BFloat*>(base + head * head_stride + run +
                                               slot * token_stride);
      };
      keys[i] =
          row(problem.k, problem.k_page_stride, problem.k_token_stride, problem.k_head_stride);
      values[i] =
          row(problem.v, problem.v_page_stride, problem.v_token_stride, problem.v_head_stride);
    }
  }
};

// K of a group, the `first` key of the chunk and those after it.
inline void pack_key_tiles(const Problem& problem, const BFloat* const* rows, int first,
                           const AmxScratch& scratch) {
  BFloat* const to = scratch.keys + first / 16 * scratch.steps * kTileElements;
  for (int step = 0; step < scratch.steps; step++) {
    const int from = step * 2 * kPairs;
    const Mask mask = first_lanes((problem.head_dim_qk - from) / 2);
    for (int i = 0; i < kKeyGroup; i++)
      store(reinterpret_cast<float*>(to + (i / 16 * scratch.steps + step) * kTileElements) +
                i % 16 * 16,
            load(reinterpret_cast<const float*>(rows[i] + from), mask));
  }
}

// V is transposed: a row of a tile is a dim, its pairs are keys.
inline void pack_value_tiles(const Problem& problem, const BFloat* const* rows, int first,
                             const AmxScratch& scratch) {
  const int dims = 32 * scratch.dim_pairs, block = first / kKeyBlock;
  BFloat* const to =
      scratch.values + block * dims * kKeyBlock + first % kKeyBlock / kKeyGroup * kTileElements;
  for (int dim = 0; dim < dims; dim += 8) {
    BFloat* const at = to + dim / 16 * kBlockGroups * kTileElements + dim % 16 * kKeyGroup;
    if (dim < problem.head_dim_vo)
      transpose_32x8(rows, dim, at);
    else
      for (int i = 0; i < 8; i++) store(reinterpret_cast<float*>(at) + i * 16, zero());
  }
}

// 16 rows of queries. A row of a tile is a pair of dims, its columns are the rows.
inline void pack_query_tiles(const BFloat* const* rows, int dims, int steps, BFloat* to) {
  for (int pair = 0; pair < steps * kPairs; pair += 4) {
    BFloat* const at = to + pair * 2 * 16;
    if (2 * pair < dims)
      transpose_pairs(rows, 2 * pair, at);
    else
      for (int i = 0; i < 4; i++) store(reinterpret_cast<float*>(at) + i * 16, zero());
  }
}

}  // namespace
}  // namespace rapt::cpu
