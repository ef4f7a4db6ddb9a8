// A step's keys and values to the slots of a cache of the same element type, 16 bytes a thread at a
// time, or 2 where rows lie so. A block for a token; a token's heads are neighbours in most caches,
// so its threads write runs.
#pragma once

#include "abi/write_kv.hpp"
#include "ptx/copy.cuh"
#include "ptx/threads.cuh"

namespace rapt::device {

template <int kChunkBytes>
DEVICE void copy_chunk(u8* to, const u8* from) {
  if constexpr (kChunkBytes == 16)
    store_global_16(to, load_global_16(from));
  else
    store_global_2(to, load_global_2(from));
}

// A token's rows of every head.
template <int kChunkBytes>
DEVICE void copy_heads(const WriteKvParams& params, const u8* from, i64 head_stride, u8* to,
                       i64 cache_head_stride, int row_bytes) {
  const int chunks = row_bytes / kChunkBytes;
  for (int i = static_cast<int>(thread_index()); i < params.num_heads * chunks;
       i += kWriteKvThreads) {
    const i64 head = i / chunks, byte = i % chunks * kChunkBytes;
    copy_chunk<kChunkBytes>(to + head * cache_head_stride + byte, from + head * head_stride + byte);
  }
}

// Where a slot's rows are.
struct CacheRows {
  u8 *k, *v;
};
DEVICE CacheRows rows_of(const WriteKvParams& params, i64 slot) {
  const i64 page = slot / params.page_size, offset = slot % params.page_size;
  return {
      params.cache_k + page * params.cache_k_page_stride + offset * params.cache_k_token_stride,
      params.cache_v + page * params.cache_v_page_stride + offset * params.cache_v_token_stride};
}

template <int kChunkBytes>
DEVICE void write_token(const WriteKvParams& params) {
  const i64 token = block_index_x();
  const i64 slot = params.slots[token];
  if (slot < 0) return;
  const CacheRows rows = rows_of(params, slot);
  copy_heads<kChunkBytes>(params, params.k + token * params.k_token_stride, params.k_head_stride,
                          rows.k, params.cache_k_head_stride, params.k_bytes);
  copy_heads<kChunkBytes>(params, params.v + token * params.v_token_stride, params.v_head_stride,
                          rows.v, params.cache_v_head_stride, params.v_bytes);
}

DEVICE void write_kv(const WriteKvParams& params) {
  if (params.chunk_bytes == 16)
    write_token<16>(params);
  else
    write_token<2>(params);
}

}  // namespace rapt::device
