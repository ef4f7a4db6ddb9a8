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

}  // namespace rapt::device
