// Partial states that are tensors of their own to one: out = sum of e^(lse_s - lse) out_s, all or
// half of a warp's lanes for each row. States that saw no key (lse -inf, or +inf) count for
// nothing, whatever their output holds; where one alone counts, not a bit of it changes.
//
// Traffic: each state is read once and the result written, head_dim elements a row. A lane reads
// all that it needs of an element before it writes it, so that the result may be one of the states.
#pragma once

#include "abi/merge.hpp"
#include "copy/divide.cuh"
#include "ptx/copy.cuh"
#include "ptx/math.cuh"
#include "ptx/threads.cuh"
#include "softmax/lanes.cuh"

namespace rapt::device {

struct F32 {};

// Thread blocks that an SM holds, so that enough bytes are on their way: as many as need no spills.
template <class From>
constexpr int kMergeBlocks = 8;
template <>
constexpr int kMergeBlocks<F32> = 6;

// kElems elements of a row from d on: 1, or 2 at a multiple of 4 bytes.
template <int kElems>
DEVICE void load_row(F32, float (&x)[kElems], const u8* row, int d) {
#pragma unroll
  for (int i = 0; i < kElems; i++) x[i] = load_coherent_f32(row + 4 * (d + i));
}
template <int kElems, class Element>
DEVICE void load_row(Element, float (&x)[kElems], const u8* row, int d) {
  if constexpr (kElems == 2) {
    const u32 pair = float_bits(load_coherent_f32(row + 2 * d));
    x[0] = Element::low(pair), x[1] = Element::high(pair);
  } else {
    x[0] = Element::low(load_coherent_2(row + 2 * d));
  }
}
// The same, or kMergeElems at a multiple of 16 bytes.
template <int kElems>
DEVICE void store_row(F32, u8* row, int d, const float (&x)[kElems]) {
  if constexpr (kElems == kMergeElems) {
#pragma unroll
    for (int i = 0; i < kElems; i += 4)
      store_global_16(row + 4 * (d + i), {float_bits(x[i]), float_bits(x[i + 1]),
                                          float_bits(x[i + 2]), float_bits(x[i + 3])});
  } else {
#pragma unroll
    for (int i = 0; i < kElems; i++) store_global_f32(row + 4 * (d + i), x[i]);
  }
}
template <int kElems, class Element>
DEVICE void store_row(Element, u8* row, int d, const float (&x)[kElems]) {
  if constexpr (kElems == kMergeElems)
    store_global_16(row + 2 * d, {Element::pack(x[0], x[1]), Element::pack(x[2], x[3]),
                                  Element::pack(x[4], x[5]), Element::pack(x[6], x[7])});
  else if constexpr (kElems == 2)
    store_global_4(row + 2 * d, Element::pack(x[0], x[1]));
  else
    store_global_2(row + 2 * d, static_cast<u16>(Element::pack(x[0], 0)));
}

// kElems elements of a row on their way, in as many registers as they have bytes.
template <class From, int kElems>
struct LoadedRow {
  float x[kElems];
  METHOD void load(const u8* row, int d) { load_row<kElems>(From{}, x, row, d); }
  METHOD float operator[](int i) const { return x[i]; }
};
template <class Element>
struct LoadedRow<Element, kMergeElems> {
  u32 pairs[kMergeElems / 2];
  METHOD void load(const u8* row, int d) {
    const Quad q = load_coherent_16(row + 2 * d);
    pairs[0] = q.x, pairs[1] = q.y, pairs[2] = q.z, pairs[3] = q.w;
  }
  METHOD float operator[](int i) const {
    return i % 2 ? Element::high(pairs[i / 2]) : Element::low(pairs[i / 2]);
  }
};
template <>
struct LoadedRow<F32, kMergeElems> {
  float x[kMergeElems];
  METHOD void load(const u8* row, int d) {
#pragma unroll
    for (int i = 0; i < kMergeElems; i += 4) {
      const Quad q = load_coherent_16(row + 4 * (d + i));
      x[i] = bits_float(q.x), x[i + 1] = bits_float(q.y);
      x[i + 2] = bits_float(q.z), x[i + 3] = bits_float(q.w);
    }
  }
  METHOD float operator[](int i) const {
    return x[i];
  }
};

// Rows are those of a block in turn; lanes whose row is not there take part in exchanges alone.
template <class From, class To, int kElems>
DEVICE void merge_row(const MergeStatesParams& params) {
  constexpr int kLanes = static_cast<int>(kWarpLanes) / merge_rows_of_warp(kElems);
  constexpr int kPerLane = kMaxMergeStates / kLanes;
  using Loaded = LoadedRow<From, kElems>;
  // States whose loads are under way together.
  constexpr int kAtOnce = 4;
  static_assert(kPerLane * kLanes == kMaxMergeStates && kMaxMergeStates % kAtOnce == 0);
  const int lane = static_cast<int>(lane_index()) % kLanes;
  const int first_lane = static_cast<int>(lane_index()) - lane;
  const i64 index = (static_cast<i64>(block_index_x()) * kMergeWarps + warp_index()) *
                        merge_rows_of_warp(kElems) +
                    first_lane / kLanes;
  const bool is_there = index < params.num_rows;
  const i64 token = divide(index, params.num_heads), head = index - token * params.num_heads;

  Loaded rows[kAtOnce];
  const auto load_state = [&](int j, int s, int d) {
    if (!is_there || s >= params.num_states || d >= params.head_dim) return;
    const MergeState& state = params.states[s];
    rows[j].load(state.out + token * state.out_token_stride + head * state.out_head_stride, d);
  };
  // Before their weights are known, since memory takes as long for those as for these.
#pragma unroll
  for (int j = 0; j < kAtOnce; j++) load_state(j, j, kElems * lane);

  // Of states lane, lane + kLanes, ...; -inf where there is none.
  float lse[kPerLane], weight[kPerLane], top = -infinity(), sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; i++) {
    lse[i] = -infinity();
    if (!is_there || lane + i * kLanes >= params.num_states) continue;
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
  for (int first = 0; first < params.head_dim; first += kElems * kLanes) {
    const int d = first + kElems * lane;
    float merged[kElems] = {};
    bool begun = false;
#pragma unroll
    for (int i = 0; i < kPerLane; i++) {
      const int end = min(params.num_states, (i + 1) * kLanes);
      // All lanes take part in every exchange; the weight of a state that is not there is 0.
      for (int s = i * kLanes; s < end; s += kAtOnce) {
        float its[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; j++) {
          its[j] = bits_float(shuffle(float_bits(weight[i] * norm), first_lane + s % kLanes + j));
          if ((first > 0 || s > 0) && its[j] != 0) load_state(j, s + j, d);
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; j++) {
          if (its[j] == 0) continue;
#pragma unroll
          for (int e = 0; e < kElems; e++)  // 0 + -0 is not -0
            merged[e] = begun ? fmaf(its[j], rows[j][e], merged[e]) : its[j] * rows[j][e];
          begun = true;
        }
      }
    }
    if (is_there && d < params.head_dim) store_row<kElems>(To{}, out, d, merged);
  }
  sync_warp();  // all have read the states' lse, of which it may be one
  if (params.lse && is_there && lane == 0)
    store_global_f32(params.lse + head * params.lse_head_stride + token * params.lse_token_stride,
                     sum == 0 ? -infinity() : top + log2_fast(sum) * kLn2);
}

template <class From, class To>
DEVICE void merge_states(const MergeStatesParams& params) {
  if (params.elems == kMergeElems)
    merge_row<From, To, kMergeElems>(params);
  else if (params.elems == 2)
    merge_row<From, To, 2>(params);
  else
    merge_row<From, To, 1>(params);
}

}  // namespace rapt::device
