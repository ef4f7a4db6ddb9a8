// What host code and the kernels that merge partial results agree on.
#pragma once

namespace rapt::device {

constexpr int kMergeWarps = 4;  // of a block, a row each

// A row whose keys were cut into parts: part s is partial row `partial + s * part_stride`.
struct MergeRow {
  long long partial, part_stride;
  int num_parts;
  int token, query_head;
};

struct MergeParams {
  const MergeRow* rows;
  int num_rows;
  int head_dim;
  const float* partial_out;  // [partial rows, head_dim]
  const float* partial_lse;  // natural logarithm; -inf: the part saw no key
  const float* sinks;        // [Hq]; null: none
  unsigned char* out;
  float* lse;                                   // null: not wanted
  long long out_token_stride, out_head_stride;  // bytes
  long long lse_head_stride, lse_token_stride;  // elements
};

// The most states of one merge(): parameters of a kernel take 4 KB.
constexpr int kMaxMergeStates = 64;

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
  bool pairs;          // every row of 16-bit elements lies at a multiple of 4, and head_dim is even
  long long num_rows;  // tokens times heads
  unsigned char* out;  // may be a state's
  float* lse;          // null: not wanted; may be a state's
  long long out_token_stride, out_head_stride;  // bytes
  long long lse_head_stride, lse_token_stride;  // elements
};

}  // namespace rapt::device
