// What host code and the kernels that merge partial results agree on.
#pragma once

namespace rapt::device {

constexpr int kMergeWarps = 4;  // of a block

// Of a MergeWork at most, for each KV head: small and large tiles then fill the blocks of a grid
// alike.
constexpr int kMergeRows = 16;

// Rows of a tile whose keys were cut into parts, of every KV head; row r is that of AttentionWork.
// Its part s, of KV head h, is partial row number
// (partial + r - row_begin + s * part_rows) * KV heads + h. All zeros: nothing.
struct MergeWork {
  long long partial;
  int part_rows;  // of the tile
  int num_parts;
  int query_start;  // of the request
  int row_begin, row_end;
};

struct MergeParams {
  const MergeWork* works;
  int blocks_per_work;  // in the grid's x, of kMergeWarps rows each
  int group, num_kv_heads;
  int head_dim;              // a multiple of 4
  const float* partial_out;  // [partial rows, head_dim], at a multiple of 16 bytes
  const float* partial_lse;  // natural logarithm; -inf: the part saw no key
  const float* sinks;        // [Hq]; null: none
  unsigned char* out;
  float* lse;                                   // null: not wanted
  long long out_token_stride, out_head_stride;  // bytes
  long long lse_head_stride, lse_token_stride;  // elements
};

// The most states of one merge(): parameters of a kernel take 4 KB.
constexpr int kMaxMergeStates = 64;

// Elements of a row that a lane takes at once, where rows lie for it.
constexpr int kMergeElems = 8;
// Rows that a warp merges at once: heads of 128 elements keep half of its lanes busy.
constexpr int merge_rows_of_warp(int elems) {
  return elems == kMergeElems ? 2 : 1;
}

// One state of merge(), tensors of its own. Strides as in MergeStatesParams.
struct MergeState {
  const unsigned char* out;
  const float* lse;
  long long out_token_stride, out_head_stride;
  long long lse_head_stride, lse_token_stride;
};

struct MergeStatesParams {
  MergeState states[kMaxMergeStates];
  int num_states;
  int num_heads, head_dim;
  // What head_dim is a multiple of: kMergeElems, and every row lies at a multiple of 16 bytes; 2,
  // and at one of 4; or 1.
  int elems;
  long long num_rows;                           // tokens times heads
  unsigned char* out;                           // may be a state's
  float* lse;                                   // null: not wanted; may be a state's
  long long out_token_stride, out_head_stride;  // bytes
  long long lse_head_stride, lse_token_stride;  // elements
};

}  // namespace rapt::device
