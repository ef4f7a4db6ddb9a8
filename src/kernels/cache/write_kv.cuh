// A step's keys and values to the slots of a cache of the same element type, 16 bytes a thread at a
// time, or 2 where rows lie so. A block for a token; a token's heads are neighbours in most caches,
// so its threads write runs.
#pragma once

#include "abi/write_kv.hpp"
#include "copy/divide.cuh"
#include "ptx/copy.cuh"
#include "ptx/math.cuh"
#include "ptx/threads.cuh"

namespace rapt::device {

template <int kChunkBytes>
DEVICE auto load_chunk(const u8* from) {
  if constexpr (kChunkBytes == 16)
    return load_global_16(from);
  else
    return load_global_2(from);
}
DEVICE void store_chunk(u8* to, Quad chunk) {
  store_global_16(to, chunk);
}
DEVICE void store_chunk(u8* to, u16 chunk) {
  store_global_2(to, chunk);
}

// A token's rows of every head, of keys or of values, in chunks: where they are, and where they go.
template <int kChunkBytes>
struct HeadRows {
  const u8* from;
  i64 head_stride;
  u8* to;
  i64 cache_head_stride;
  int row_chunks, num_chunks;

  METHOD auto load(int i) const {
    return load_chunk<kChunkBytes>(from + i / row_chunks * head_stride + byte(i));
  }
  template <typename Chunk>
  METHOD void store(int i, Chunk chunk) const {
    store_chunk(to + i / row_chunks * cache_head_stride + byte(i), chunk);
  }

 private:
  METHOD int byte(int i) const { return i % row_chunks * kChunkBytes; }
};

template <int kChunkBytes>
DEVICE HeadRows<kChunkBytes> head_rows(const u8* from, i64 head_stride, u8* to,
                                       i64 cache_head_stride, int row_bytes, int num_heads) {
  const int chunks = row_bytes / kChunkBytes;
  return {from, head_stride, to, cache_head_stride, chunks, num_heads * chunks};
}

// Where a slot's rows are.
struct CacheRows {
  u8 *k, *v;
};
DEVICE CacheRows rows_of(const WriteKvParams& params, i64 slot) {
  const i64 page = divide(slot, params.page_size), offset = slot - page * params.page_size;
  return {
      params.cache_k + page * params.cache_k_page_stride + offset * params.cache_k_token_stride,
      params.cache_v + page * params.cache_v_page_stride + offset * params.cache_v_token_stride};
}
template <int kChunkBytes>
DEVICE HeadRows<kChunkBytes> values_of(const WriteKvParams& params, i64 token,
                                       const CacheRows& rows) {
  return head_rows<kChunkBytes>(params.v + token * params.v_token_stride, params.v_head_stride,
                                rows.v, params.cache_v_head_stride, params.v_bytes,
                                params.num_heads);
}

template <int kChunkBytes>
DEVICE void write_token(const WriteKvParams& params) {
  const i64 token = block_index_x();
  const i64 slot = params.slots[token];
  if (slot < 0) return;
  const CacheRows rows = rows_of(params, slot);
  const HeadRows<kChunkBytes> k =
      head_rows<kChunkBytes>(params.k + token * params.k_token_stride, params.k_head_stride, rows.k,
                             params.cache_k_head_stride, params.k_bytes, params.num_heads);
  const HeadRows<kChunkBytes> v = values_of<kChunkBytes>(params, token, rows);
  // Of both before the first store: twice the bytes are under way.
  for (int i = static_cast<int>(thread_index()); i < max(k.num_chunks, v.num_chunks);
       i += kWriteKvThreads) {
    decltype(k.load(i)) from_k{}, from_v{};
    if (i < k.num_chunks) from_k = k.load(i);
    if (i < v.num_chunks) from_v = v.load(i);
    if (i < k.num_chunks) k.store(i, from_k);
    if (i < v.num_chunks) v.store(i, from_v);
  }
}

DEVICE void write_kv(const WriteKvParams& params) {
  if (params.chunk_bytes == 16)
    write_token<16>(params);
  else
    write_token<2>(params);
}

}  // namespace rapt::device
