// A step's keys, rotated by their positions, and values to the slots of a cache, and its queries
// rotated with them. A block for a token, as in write_kv.cuh.
//
// Traffic: keys, values and queries are read once and written once; a token's cosines and sines are
// read by every head, from L1 after the first.
#pragma once

#include "abi/write_kv.hpp"
#include "cache/write_kv.cuh"
#include "ptx/copy.cuh"
#include "ptx/math.cuh"
#include "ptx/threads.cuh"

namespace rapt::device {

// Pair number `pair` of a row, of num_pairs.
template <bool kInterleaved, class Element>
DEVICE void rotate_pair(u8* to, const u8* from, int pair, int num_pairs, const float* cos_sin) {
  const int a = 2 * (kInterleaved ? 2 * pair : pair), b = a + 2 * (kInterleaved ? 1 : num_pairs);
  const float x = Element::low(load_coherent_2(from + a));
  const float y = Element::low(load_coherent_2(from + b));
  const float cos = load_global_f32(cos_sin + pair);
  const float sin = load_global_f32(cos_sin + num_pairs + pair);
  const u32 rotated = Element::pack(x * cos - y * sin, y * cos + x * sin);
  store_global_2(to + a, static_cast<u16>(rotated));
  store_global_2(to + b, static_cast<u16>(rotated >> 16));
}

constexpr int kChunkPairs = 8;  // two chunks of 16 bytes

DEVICE void load_floats(float (&values)[kChunkPairs], const float* p) {
  const Quad low = load_global_16(p), high = load_global_16(p + 4);
  const u32 bits[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < kChunkPairs; i++) values[i] = bits_float(bits[i]);
}

// Pairs [pair, pair + kChunkPairs).
template <bool kInterleaved, class Element>
DEVICE void rotate_pairs(u8* to, const u8* from, int pair, int num_pairs, const float* cos_sin) {
  const int a = 2 * (kInterleaved ? 2 * pair : pair), b = a + (kInterleaved ? 16 : 2 * num_pairs);
  const Quad qa = load_coherent_16(from + a), qb = load_coherent_16(from + b);
  const u32 in[] = {qa.x, qa.y, qa.z, qa.w, qb.x, qb.y, qb.z, qb.w};
  float cos[kChunkPairs], sin[kChunkPairs];
  load_floats(cos, cos_sin + pair);
  load_floats(sin, cos_sin + num_pairs + pair);
  u32 out[kChunkPairs];
  if constexpr (kInterleaved) {  // a pair in each register
#pragma unroll
    for (int i = 0; i < kChunkPairs; i++) {
      const float x = Element::low(in[i]), y = Element::high(in[i]);
      out[i] = Element::pack(x * cos[i] - y * sin[i], y * cos[i] + x * sin[i]);
    }
  } else {  // two pairs in registers i and i + 4
#pragma unroll
    for (int i = 0; i < kChunkPairs / 2; i++) {
      const float x[] = {Element::low(in[i]), Element::high(in[i])};
      const float y[] = {Element::low(in[i + 4]), Element::high(in[i + 4])};
      const float c[] = {cos[2 * i], cos[2 * i + 1]}, s[] = {sin[2 * i], sin[2 * i + 1]};
      out[i] = Element::pack(x[0] * c[0] - y[0] * s[0], x[1] * c[1] - y[1] * s[1]);
      out[i + 4] = Element::pack(y[0] * c[0] + x[0] * s[0], y[1] * c[1] + x[1] * s[1]);
    }
  }
  store_global_16(to + a, {out[0], out[1], out[2], out[3]});
  store_global_16(to + b, {out[4], out[5], out[6], out[7]});
}

// A token's rows of num_heads heads. A thread reads all of its elements before it writes them, so
// that rows may be rotated in place.
template <int kChunkBytes, bool kInterleaved, class Element>
DEVICE void rotate_heads(const RopeWriteKvParams& params, const float* cos_sin, const u8* from,
                         i64 head_stride, u8* to, i64 to_head_stride, int num_heads) {
  constexpr int kPairs = kChunkBytes == 16 ? kChunkPairs : 1;
  const int num_pairs = params.rotary_dim / 2, runs = num_pairs / kPairs;
  const int chunks = (params.write.k_bytes - 2 * params.rotary_dim) / kChunkBytes;  // that stay
  for (int i = static_cast<int>(thread_index()); i < num_heads * (runs + chunks);
       i += kWriteKvThreads) {
    const int head = i / (runs + chunks), item = i % (runs + chunks);
    u8* to_row = to + head * to_head_stride;
    const u8* row = from + head * head_stride;
    if (item >= runs) {
      const int byte = 2 * params.rotary_dim + (item - runs) * kChunkBytes;
      if constexpr (kChunkBytes == 16)
        store_global_16(to_row + byte, load_coherent_16(row + byte));
      else
        store_global_2(to_row + byte, load_coherent_2(row + byte));
    } else if constexpr (kChunkBytes == 16) {
      rotate_pairs<kInterleaved, Element>(to_row, row, item * kPairs, num_pairs, cos_sin);
    } else {
      rotate_pair<kInterleaved, Element>(to_row, row, item, num_pairs, cos_sin);
    }
  }
}

template <int kChunkBytes, bool kInterleaved, class Element>
DEVICE void rope_write_token(const RopeWriteKvParams& params) {
  const WriteKvParams& write = params.write;
  const i64 token = block_index_x();
  const i64 slot = write.slots[token];
  if (slot < 0 && !params.q) return;
  const i64 position = params.position_bytes == 8
                           ? static_cast<const i64*>(params.positions)[token]
                           : static_cast<const int*>(params.positions)[token];
  const float* cos_sin = params.cos_sin + position * params.cos_sin_stride;
  if (params.q)
    rotate_heads<kChunkBytes, kInterleaved, Element>(
        params, cos_sin, params.q + token * params.q_token_stride, params.q_head_stride,
        params.q_out + token * params.q_out_token_stride, params.q_out_head_stride,
        params.num_query_heads);
  if (slot < 0) return;
  const CacheRows rows = rows_of(write, slot);
  rotate_heads<kChunkBytes, kInterleaved, Element>(
      params, cos_sin, write.k + token * write.k_token_stride, write.k_head_stride, rows.k,
      write.cache_k_head_stride, write.num_heads);
  const HeadRows<kChunkBytes> values = values_of<kChunkBytes>(write, token, rows);
  for (int i = static_cast<int>(thread_index()); i < values.num_chunks; i += kWriteKvThreads)
    values.store(i, values.load(i));
}

template <class Element>
DEVICE void rope_write_kv(const RopeWriteKvParams& params) {
  const bool wide = params.write.chunk_bytes == 16;
  if (params.interleaved)
    wide ? rope_write_token<16, true, Element>(params) : rope_write_token<2, true, Element>(params);
  else
    wide ? rope_write_token<16, false, Element>(params)
         : rope_write_token<2, false, Element>(params);
}

}  // namespace rapt::device
