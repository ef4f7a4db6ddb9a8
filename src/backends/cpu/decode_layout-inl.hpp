// Where the decode kernel keeps its rows, in a thread's scratch.
#pragma once

#include "backends/cpu/rows-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr int kMaxDecodeRows = 16;

// A row of zeros, a row in order, then head by head what belongs to one, as close together as the
// rows allow, since all of it is to stay in L1 beside the keys that pass through; last the
// PieceList. Bytes; parts begin at multiples of 64.
struct DecodeLayout {
  int64_t query_stride, out_stride;  // elements of a row
  // From the head's start; its query rows come first.
  int64_t out, states, scores, probabilities;
  int64_t head_bytes;

  // Of whole tiles of tile_rows rows.
  DecodeLayout(const Problem& problem, int rows, int tile_rows, int query_bytes) {
    auto place = [at = int64_t{0}](int64_t bytes) mutable {
      return at = (at + bytes + 63) / 64 * 64;
    };
    query_stride = round_up_to(problem.head_dim_qk, 32);
    out_stride = round_up_to(problem.head_dim_vo, 32);
    out = place(rows * query_stride * query_bytes);
    states = place(rows * out_stride * int64_t{sizeof(float)});
    scores = place(rows / tile_rows * (2 + tile_rows) * kWidth * int64_t{sizeof(float)});
    probabilities = place(rows * kBlockKeys * int64_t{sizeof(float)});
    // An odd number of lines, so that heads don't meet in the same sets of a cache.
    head_bytes = place(rows * kBlockKeys * int64_t{sizeof(float)}) | 64;
  }

  int64_t row_bytes() const { return out_stride * int64_t{sizeof(float)}; }
  int64_t head(int64_t index) const { return 2 * row_bytes() + index * head_bytes; }
};

inline size_t decode_scratch_bytes(const Problem& problem) {
  const DecodeLayout layout(problem, kMaxDecodeRows, 1, sizeof(float));
  const auto element = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t pieces = kBlockKeys * problem.num_kv_heads *
                             (PieceList::pieces_of(problem.head_dim_qk * element) +
                              PieceList::pieces_of(problem.head_dim_vo * element)) +
                         PieceList::kPadding;
  return static_cast<size_t>(layout.head(problem.num_kv_heads) + pieces * int64_t{sizeof(void*)});
}

}  // namespace
}  // namespace rapt::cpu
