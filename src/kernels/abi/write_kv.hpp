// What host code and the kernel that writes keys and values to a cache agree on.
#pragma once

namespace rapt::device {

// Strides are in bytes, rows and strides multiples of 16.
struct WriteKvParams {
  const long long* slots;  // [tokens]: page * page_size + offset; negative: not written
  int num_tokens, num_heads;
  int k_bytes, v_bytes;  // of a row
  long long page_size;
  const unsigned char *k, *v;
  unsigned char *cache_k, *cache_v;
  long long k_token_stride, k_head_stride, v_token_stride, v_head_stride;
  long long cache_k_page_stride, cache_k_token_stride, cache_k_head_stride;
  long long cache_v_page_stride, cache_v_token_stride, cache_v_head_stride;
};

}  // namespace rapt::device
