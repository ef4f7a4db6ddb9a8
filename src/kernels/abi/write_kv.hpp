// What host code and the kernel that writes keys and values to a cache agree on.
#pragma once

namespace rapt::device {

constexpr int kWriteKvThreads = 128;

// Strides are in bytes.
struct WriteKvParams {
  const long long* slots;  // [tokens]: page * page_size + offset; negative: not written
  int num_tokens, num_heads;
  int k_bytes, v_bytes;  // of a row
  int chunk_bytes;       // 16 or 2: what addresses, strides and rows are multiples of
  long long page_size;
  const unsigned char *k, *v;
  unsigned char *cache_k, *cache_v;
  long long k_token_stride, k_head_stride, v_token_stride, v_head_stride;
  long long cache_k_page_stride, cache_k_token_stride, cache_k_head_stride;
  long long cache_v_page_stride, cache_v_token_stride, cache_v_head_stride;
};

// The same with rotary position embedding, of 16-bit elements.
struct RopeWriteKvParams {
  WriteKvParams write;    // chunk_bytes 16: rotary_dim is a multiple of 16 too, and so is what
                          // cos_sin's rows begin at, in bytes
  const void* positions;  // [tokens] of position_bytes each
  int position_bytes;     // 4 or 8
  int rotary_dim;         // elements, even
  bool interleaved;       // pairs are neighbours
  int num_query_heads;
  const float* cos_sin;      // [positions, rotary_dim]: cosines of a row's pairs, then sines
  long long cos_sin_stride;  // elements
  const unsigned char* q;    // null: none are rotated
  unsigned char* q_out;      // may be q
  long long q_token_stride, q_head_stride, q_out_token_stride, q_out_head_stride;
};

}  // namespace rapt::device
