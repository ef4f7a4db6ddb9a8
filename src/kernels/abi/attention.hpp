// What host code and the attention kernels agree on. Both compile this file, so it includes
// nothing.
#pragma once

namespace rapt::device {

// The values that a generation-2 kernel is compiled for.
struct AttentionVariant {
  int head_dim_qk, head_dim_vo;  // multiples of 8, at most 256
  int group;                     // query heads of a KV head
  int page_size;                 // tokens; 0: K and V without a cache
  int tile_rows, tile_keys;      // of a block: rows a multiple of 16 * warps, keys of 16
  // Blocks of keys in shared memory: 2, or 1; V is then copied beside Q K^T, and the next K beside
  // P V.
  int stages;
  int num_warps;
  // Scores are more than scale * (q . k): scale <= 0, softcap, ALiBi.
  bool scores_in_advance;
  bool softcap, alibi, custom_mask, sinks;

  constexpr int num_threads() const { return 32 * num_warps; }
  // Whether a last block of at most half the keys takes half the time: what a mask hides beside
  // them counts where blocks are long. (With two stages it costs others more than it is worth.)
  constexpr bool halves_blocks() const { return stages == 1 && tile_keys >= 128; }
  // Of AttentionShared: the queries, blocks of keys and values, where two of those lie,
  // which keys the rows see, and what the work is.
  constexpr int shared_bytes() const {
    return tile_rows * row_bytes(head_dim_qk) +
           stages * tile_keys * (row_bytes(head_dim_qk) + row_bytes(head_dim_vo)) +
           2 * tile_keys * 16 + tile_rows * 8 + 128;
  }
  // Of a row of 16-bit elements in shared memory: whole runs of 64.
  static constexpr int row_bytes(int head_dim) { return (head_dim + 63) / 64 * 128; }
  constexpr bool operator==(const AttentionVariant&) const = default;
};

// A request of the step.
struct AttentionRequest {
  int query_start, query_len, kv_len;
  int kv_start;          // without a cache: row of the first key
  long long first_page;  // index of its page table's first entry in AttentionParams::page_ids
  long long mask_bit;    // of its first bit in AttentionParams::custom_mask
};

// What a thread block does for each KV head: rows of a request against some of its keys. Row r is
// query token r / group of query head kv_head * group + r % group. All zeros: nothing.
struct AttentionWork {
  AttentionRequest of_request;  // here, so that a block has all it needs by one load
  int request;                  // its number in the batch
  int row_begin, row_end;       // at most a tile
  int key_begin, key_end;
  // -1: out and lse are written; else row r's partial row is number
  // (partial + r - row_begin) * KV heads + kv_head.
  long long partial;
};

// Pointers are device addresses; strides are in bytes unless said otherwise.
struct AttentionParams {
  const AttentionWork* works;  // [grid y]; the grid's x are the KV heads
  const int* page_ids;
  const unsigned char *q, *k, *v;
  unsigned char* out;
  float* lse;                        // [Hq, T]; null: not wanted
  float* partial_out;                // [partial rows, head_dim_vo] in fp32
  float* partial_lse;                // [partial rows]
  const float* alibi_slopes;         // [Hq]
  const float* sinks;                // [Hq]
  const unsigned char* custom_mask;  // one bit for each (query, key) of each request
  long long q_token_stride, q_head_stride;
  long long k_page_stride, k_token_stride, k_head_stride;
  long long v_page_stride, v_token_stride, v_head_stride;
  long long out_token_stride, out_head_stride;
  long long lse_head_stride, lse_token_stride;  // elements
  int window_left, window_right;                // -1: unlimited
  float scale;                                  // k_scale included
  float softcap;
  float out_scale;     // v_scale, or 1
  bool out_in_chunks;  // every row of out lies at a multiple of 16 bytes, not only of 4
};

}  // namespace rapt::device
