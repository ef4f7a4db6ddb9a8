// Partial results of a row's parts to the row: out = sum of 2^(lse_s - lse) out_s, a warp for each
// row. Parts that saw no key count for nothing, whatever their output holds.
//
// Traffic: each partial row is read once, 4 * head_dim bytes, 16 of them by a lane, kPartsAtOnce
// parts under way together; the first of them before their weights are known.
#pragma once

#include "abi/merge.hpp"
#include "ptx/copy.cuh"
#include "ptx/math.cuh"
#include "ptx/threads.cuh"
#include "softmax/sink.cuh"

namespace rapt::device {

template <typename Element>
DEVICE void merge_rows(const MergeParams& params) {
  constexpr int kLanes = static_cast<int>(kWarpLanes), kElems = 4, kPartsAtOnce = 8;
  static_assert(kLanes % kPartsAtOnce == 0);
  const int lane = static_cast<int>(lane_index());
  // Unsigned, since those divide in fewer instructions.
  const u32 blocks = params.blocks_per_work, heads = params.num_kv_heads, group = params.group;
  const MergeWork& work = params.works[block_index_x() / blocks];
  const u32 index = block_index_x() % blocks * kMergeWarps + warp_index();
  // A graph has room for more works than there are, its blocks for more rows than a work has.
  if (index >= (work.row_end - work.row_begin) * heads) return;
  const u32 row = work.row_begin + index / heads;
  const i64 token = work.query_start + row / group;
  const i64 query_head = index % heads * group + row % group;
  const i64 partial = work.partial * heads + index, part_stride = work.part_rows * heads;
  const int num_parts = work.num_parts;

  const i64 part_elems = part_stride * params.head_dim;
  Quad loaded[kPartsAtOnce];
  const auto load_parts = [&](int part, int d) {
    if (d >= params.head_dim) return;
    const float* from = params.partial_out + (partial + part * part_stride) * params.head_dim + d;
#pragma unroll
    for (int i = 0; i < kPartsAtOnce; i++, from += part_elems)
      if (part + i < num_parts) loaded[i] = load_coherent_16(from);
  };
  load_parts(0, kElems * lane);

  // In log2 units. +inf from a peer counts as no key.
  const auto lse_of = [&](int part) {
    const float lse = load_coherent_f32(params.partial_lse + partial + part * part_stride);
    return lse == infinity() ? -infinity() : lse * kLog2E;
  };
  float top = -infinity();
#pragma unroll 1  // seldom twice
  for (int part = lane; part < num_parts; part += kLanes) top = fmaxf(top, lse_of(part));
  top = lanes_max<kLanes>(top);
  const float natural = params.sinks ? load_global_f32(params.sinks + query_head) : -infinity();
  const float sink = sink_in_log2(natural);
  top = fmaxf(top, sink);
  // Nothing to weigh: any finite reference will do.
  const float reference = top == -infinity() ? 0 : top;
  float sum = 0;
#pragma unroll 1
  for (int part = lane; part < num_parts; part += kLanes)
    sum += exp2_fast(lse_of(part) - reference);
  // +inf takes all the weight, and inf - inf would be NaN.
  sum = lanes_sum<kLanes>(sum) +
        (sink == top ? (sink == -infinity() ? 0 : 1) : exp2_fast(sink - reference));

  const float norm = sum == 0 ? 0 : 1 / sum;
  u8* out = params.out + token * params.out_token_stride + query_head * params.out_head_stride;
  for (int first_d = 0; first_d < params.head_dim; first_d += kElems * kLanes) {
    const int d = first_d + kElems * lane;
    float merged[kElems] = {};
    for (int first = 0; first < num_parts; first += kLanes) {
      // Of part first + lane.
      float weight = 0;
      if (first + lane < num_parts) weight = exp2_fast(lse_of(first + lane) - reference) * norm;
      // All lanes take part in every exchange; the weight of a part that is not there is 0.
      for (int part = first; part < min(num_parts, first + kLanes); part += kPartsAtOnce) {
        if (first_d > 0 || part > 0) load_parts(part, d);
#pragma unroll
        for (int i = 0; i < kPartsAtOnce; i++) {
          const float its = bits_float(shuffle(float_bits(weight), part - first + i));
          if (its == 0) continue;
          merged[0] = fmaf(its, bits_float(loaded[i].x), merged[0]);
          merged[1] = fmaf(its, bits_float(loaded[i].y), merged[1]);
          merged[2] = fmaf(its, bits_float(loaded[i].z), merged[2]);
          merged[3] = fmaf(its, bits_float(loaded[i].w), merged[3]);
        }
      }
    }
    if (d >= params.head_dim) continue;
    // Rows lie at multiples of 4 bytes.
    store_global_4(out + 2 * d, Element::pack(merged[0], merged[1]));
    store_global_4(out + 2 * d + 4, Element::pack(merged[2], merged[3]));
  }
  if (params.lse && lane == 0)
    store_global_f32(
        params.lse + query_head * params.lse_head_stride + token * params.lse_token_stride,
        sum == 0 ? -infinity() : lse_with_sink(sum, reference, natural, sink));
}

}  // namespace rapt::device
