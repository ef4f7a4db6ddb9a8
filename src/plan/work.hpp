// The unit of CPU work that planners make and kernels run. Plain data: kernel files include it.
#pragma once

#include <cstdint>

namespace rapt::cpu {

enum class Phase : int32_t { kDecode, kPrefill };

// One kernel call: rows of a request against a range of its keys, for a range of its KV heads. A
// row is a query token of one query head of the group: row r of KV head h is token r / group, query
// head h * group + r % group. No padding, so that a plan's bytes are its values.
struct Work {
  int32_t request;
  int32_t kv_head_begin, kv_head_end;
  int32_t row_begin, row_end;  // within [0, query_len * group)
  int32_t key_begin, key_end;  // keys outside what the rows see are skipped by the kernel
  Phase phase;
  int64_t partial;  // -1: the work sees all its rows' keys and writes out and lse itself. Otherwise
                    // the index of its first partial row; rows follow [kv_head][row] in order.
};

// Rows whose keys were cut into num_parts pieces of Work. Part s of row r of KV head h is partial
// row `partial + (s * heads + h - kv_head_begin) * rows + r - row_begin`.
struct Merge {
  int32_t request;
  int32_t kv_head_begin, kv_head_end;
  int32_t row_begin, row_end;
  int32_t num_parts;
  int64_t partial;
  int64_t first_row;  // merged rows of the merges before this one
};

}  // namespace rapt::cpu
