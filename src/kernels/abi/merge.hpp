// What host code and the kernel that merges partial results agree on.
#pragma once

namespace rapt::device {

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

}  // namespace rapt::device
