// Partial results of a row's parts to the row: out = sum of 2^(lse_s - lse) out_s, a warp for each
// row. Parts that saw no key count for nothing, whatever their output holds.
//
// Traffic: each partial row is read once, 4 * head_dim bytes.
#pragma once

#include "abi/merge.hpp"
#include "ptx/copy.cuh"
#include "ptx/math.cuh"
#include "ptx/threads.cuh"
#include "softmax/sink.cuh"

namespace rapt::device {

template <typename Element>
DEVICE void merge_rows(const MergeParams& params) {
  const int lane = static_cast<int>(lane_index());
  const int index = static_cast<int>(block_index_x() * kMergeWarps + warp_index());
  if (index >= params.num_rows) return;
  const MergeRow& row = params.rows[index];
  if (row.num_parts == 0) return;  // a graph has room for more rows than there are
  // In log2 units. +inf from a peer counts as no key.
  const auto lse_of = [&](int part) {
    const float lse = load_coherent_f32(params.partial_lse + row.partial + part * row.part_stride);
    return lse == infinity() ? -infinity() : lse * kLog2E;
  };

  float top = -infinity();
  for (int part = lane; part < row.num_parts; part += kWarpLanes) top = fmaxf(top, lse_of(part));
  top = lanes_max<kWarpLanes>(top);
  const float natural = params.sinks ? load_global_f32(params.sinks + row.query_head) : -infinity();
  const float sink = sink_in_log2(natural);
  top = fmaxf(top, sink);
  // Nothing to weigh: any finite reference will do.
  const float reference = top == -infinity() ? 0 : top;
  float sum = 0;
  for (int part = lane; part < row.num_parts; part += kWarpLanes)
    sum += exp2_fast(lse_of(part) - reference);
  // +inf takes all the weight, and inf - inf would be NaN.
  sum = lanes_sum<kWarpLanes>(sum) +
        (sink == top ? (sink == -infinity() ? 0 : 1) : exp2_fast(sink - reference));

  const float norm = sum == 0 ? 0 : 1 / sum;
  unsigned char* out =
      params.out + row.token * params.out_token_stride + row.query_head * params.out_head_stride;
  for (int d = 2 * lane; d < params.head_dim; d += 2 * static_cast<int>(kWarpLanes)) {
    float low = 0, high = 0;
    for (int part = 0; part < row.num_parts; part++) {
      const float lse = lse_of(part);
      if (lse == -infinity()) continue;
      const float weight = exp2_fast(lse - reference) * norm;
      const float* from =
          params.partial_out + (row.partial + part * row.part_stride) * params.head_dim + d;
      low = fmaf(weight, load_coherent_f32(from), low);
      high = fmaf(weight, load_coherent_f32(from + 1), high);
    }
    store_global_4(out + 2 * d, Element::pack(low, high));
  }
  if (params.lse && lane == 0)
    store_global_f32(
        params.lse + row.query_head * params.lse_head_stride + row.token * params.lse_token_stride,
        sum == 0 ? -infinity() : lse_with_sink(sum, reference, natural, sink));
}

}  // namespace rapt::device
