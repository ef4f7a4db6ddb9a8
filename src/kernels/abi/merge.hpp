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

// How merge() of states is cut: each warp takes a tile, some tokens of one head. A lane asks for
// kMergeLoads pieces of rows before it waits for any, so that enough bytes are on their way.
constexpr int kMergeLoads = 8;
constexpr int kMergePieceBytes = 16;  // of a wide piece
struct MergeTiles {
  // Of a piece, and a divisor of head_dim: as many as the states have in a wide piece, where every
  // row lies at a multiple of 16 bytes; 2, where every row lies at one of 4; or 1.
  int elems;
  int states_at_once;  // whose pieces a lane asks for, of kMergeLoads / states_at_once rows
  int lanes_log2;      // lanes that share a row
};
constexpr MergeTiles merge_tiles(int elems, int num_states, int head_dim) {
  const bool wide = elems > 2;  // other rows are too rare for tiles of their own
  const int states_at_once = wide && num_states <= 2   ? 2
                             : wide && num_states <= 4 ? 4
                                                       : kMergeLoads;
  // As many as a row has pieces. With less than 8 a tile had more weights, kMergeLoads for each
  // group of lanes, than the warp has lanes to hold them.
  const int lanes_log2 = head_dim <= 8 * elems ? 3 : head_dim <= 16 * elems ? 4 : 5;
  return {elems, states_at_once, lanes_log2};
}
constexpr int merge_tile_tokens(const MergeTiles& tiles) {
  return kMergeLoads / tiles.states_at_once << (5 - tiles.lanes_log2);
}
constexpr long long merge_blocks(const MergeTiles& tiles, long long num_tokens, int num_heads) {
  const int tokens = merge_tile_tokens(tiles);
  return ((num_tokens + tokens - 1) / tokens * num_heads + kMergeWarps - 1) / kMergeWarps;
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
  int num_tokens, num_heads, head_dim;
  MergeTiles tiles;
  unsigned char* out;                           // may be a state's
  float* lse;                                   // null: not wanted; may be a state's
  long long out_token_stride, out_head_stride;  // bytes
  long long lse_head_stride, lse_token_stride;  // elements
};

}  // namespace rapt::device
