// Partial states that are tensors of their own to one: out = sum of e^(lse_s - lse) out_s, a warp
// for each row. States that saw no key (lse -inf, or +inf) count for nothing, whatever their output
// holds; where one alone counts, not a bit of it changes.
//
// Traffic: each state is read once and the result written, head_dim elements a row. A warp reads
// all that it needs of an element before it writes it, so that the result may be one of the states.
#pragma once

#include "abi/merge.hpp"
#include "ptx/copy.cuh"
#include "ptx/math.cuh"
#include "ptx/threads.cuh"
#include "softmax/lanes.cuh"

namespace rapt::device {

struct F32 {};

// Elements d and, of a pair, d + 1 of a row.
template <bool kPair>
DEVICE void load_row(F32, float (&x)[2], const u8* row, int d) {
  x[0] = load_coherent_f32(row + 4 * d);
  if (kPair) x[1] = load_coherent_f32(row + 4 * d + 4);
}
template <bool kPair, class Element>
DEVICE void load_row(Element, float (&x)[2], const u8* row, int d) {
  const u32 pair =
      kPair ? float_bits(load_coherent_f32(row + 2 * d)) : load_coherent_2(row + 2 * d);
  x[0] = Element::low(pair);
  x[1] = Element::high(pair);
}
template <bool kPair>
DEVICE void store_row(F32, u8* row, int d, const float (&x)[2]) {
  store_global_f32(row + 4 * d, x[0]);
  if (kPair) store_global_f32(row + 4 * d + 4, x[1]);
}
template <bool kPair, class Element>
DEVICE void store_row(Element, u8* row, int d, const float (&x)[2]) {
  const u32 pair = Element::pack(x[0], x[1]);
  if (kPair)
    store_global_4(row + 2 * d, pair);
  else
    store_global_2(row + 2 * d, static_cast<u16>(pair));
}

template <class From, class To, bool kPair>
DEVICE void merge_row(const MergeStatesParams& params, i64 index) {
  const int lane = static_cast<int>(lane_index());
  const i64 token = index / params.num_heads, head = index % params.num_heads;
  constexpr int kLanes = kWarpLanes, kPerLane = 2;
  static_assert(kPerLane * kLanes == kMaxMergeStates);

  // Of states lane and lane + 32; -inf where there is none.
  float lse[kPerLane], weight[kPerLane], top = -infinity(), sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; i++) {
    lse[i] = -infinity();
    if (lane + i * kLanes >= params.num_states) continue;
    const MergeState& state = params.states[lane + i * kLanes];
    lse[i] = load_coherent_f32(state.lse + head * state.lse_head_stride +
                               token * state.lse_token_stride);
    if (lse[i] == infinity()) lse[i] = -infinity();
    // fmaxf drops a NaN, which weighs everything below.
    top = fmaxf(top, lse[i]);
  }
  top = lanes_max<kLanes>(top);
#pragma unroll
  for (int i = 0; i < kPerLane; i++) {
    weight[i] = lse[i] == -infinity() ? 0 : exp2_fast((lse[i] - top) * kLog2E);
    sum += weight[i];
  }
  sum = lanes_sum<kLanes>(sum);
  const float norm = sum == 0 ? 0 : 1 / sum;

  u8* out = params.out + token * params.out_token_stride + head * params.out_head_stride;
  constexpr int kStep = kPair ? 2 : 1;
  // All lanes take part in every shuffle.
  for (int first = 0; first < params.head_dim; first += kStep * kLanes) {
    const int d = first + kStep * lane;
    float merged[2] = {0, 0};
    bool begun = false;
    for (int s = 0; s < params.num_states; s++) {
      const float mine = s < kLanes ? weight[0] : weight[1];
      const float its = bits_float(shuffle(float_bits(mine * norm), s % kLanes));
      if (its == 0) continue;
      const MergeState& state = params.states[s];
      float x[2] = {0, 0};
      if (d < params.head_dim)
        load_row<kPair>(From{}, x,
                        state.out + token * state.out_token_stride + head * state.out_head_stride,
                        d);
#pragma unroll
      for (int i = 0; i < 2; i++)
        merged[i] = begun ? fmaf(its, x[i], merged[i]) : its * x[i];  // 0 + -0 is not -0
      begun = true;
    }
    if (d < params.head_dim) store_row<kPair>(To{}, out, d, merged);
  }
  sync_warp();  // all have read the states' lse, of which it may be one
  if (params.lse && lane == 0)
    store_global_f32(params.lse + head * params.lse_head_stride + token * params.lse_token_stride,
                     sum == 0 ? -infinity() : top + log2_fast(sum) * kLn2);
}

template <class From, class To>
DEVICE void merge_states(const MergeStatesParams& params) {
  const i64 index = static_cast<i64>(block_index_x()) * kMergeWarps + warp_index();
  if (index >= params.num_rows) return;
  if (params.pairs)
    merge_row<From, To, true>(params, index);
  else
    merge_row<From, To, false>(params, index);
}

}  // namespace rapt::device
