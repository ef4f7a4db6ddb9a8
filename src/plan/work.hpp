// The unit of CPU work that planners make and kernels run. Plain data: kernel files include it.
#pragma once

#include <cstdint>

namespace rapt::cpu {

// Keys of the longest chain of fp32 sums. A work of more is run in several kernel calls, cut at
// multiples of this many keys, whose partial states are folded in fp64: one chain drops what is
// small beside its sum, of 2^26 equal keys three quarters.
constexpr int32_t kMaxChainKeys = 16384;

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

  bool is_folded() const { return key_end - key_begin > kMaxChainKeys; }
  int64_t num_rows() const { return int64_t{kv_head_end - kv_head_begin} * (row_end - row_begin); }
};

// Where a folded work's rows lie in a thread's scratch, in bytes from their start, and how many
// there are of these. Partial states of a kernel call; the states they are folded into.
struct FoldLayout {
  int64_t part_out, part_lse;    // fp32 [rows, stride], [rows]
  int64_t values, maxima, sums;  // fp64 [rows, stride], [rows], [rows]
  int64_t bytes;

  // Rows of `stride` elements, a multiple of 16.
  FoldLayout(int64_t rows, int64_t stride) {
    bytes = 0;
    const auto place = [this](int64_t size) {
      const int64_t at = bytes;
      bytes += (size + 63) / 64 * 64;
      return at;
    };
    part_out = place(rows * stride * int64_t{sizeof(float)});
    part_lse = place(rows * int64_t{sizeof(float)});
    values = place(rows * stride * int64_t{sizeof(double)});
    maxima = place(rows * int64_t{sizeof(double)});
    sums = place(rows * int64_t{sizeof(double)});
  }
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
