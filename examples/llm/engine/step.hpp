// One forward pass over a packed batch: what the scheduler decides and the transformer computes.
#pragma once

#include <cstdint>
#include <vector>

namespace llm {

// T tokens of B requests, request after request; a request's are consecutive in its text. All of a
// step's keys and values are written before any is read, layer by layer, so a request may stand on
// pages that another one fills in the same step.
struct Step {
  std::vector<int32_t> tokens;       // [T]
  std::vector<int32_t> positions;    // [T], in the request's text
  std::vector<int64_t> slots;        // [T], where the cache takes the token's key and value
  std::vector<int32_t> query_start;  // [B + 1]
  std::vector<int32_t> kv_len;       // [B], this step's tokens included
  std::vector<int32_t> page_table;   // [B, table_width]
  int64_t table_width = 0;
  std::vector<int32_t> logit_rows;  // [R], rows in [0, T) whose next token is wanted

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_requests() const { return static_cast<int64_t>(kv_len.size()); }
};

}  // namespace llm
