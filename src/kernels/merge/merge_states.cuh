// Partial states that are tensors of their own to one: out = sum of e^(lse_s - lse) out_s. States
// that saw no key (lse -inf, or +inf) count for nothing, whatever their output holds; where one
// alone counts, not a bit of it changes.
//
// Traffic of a row: each state's and the result's, head_dim elements and an lse. There is little to
// compute, so that bytes on their way are what counts, and instructions: of bf16, some four for
// each two elements read. A warp takes a few tokens of one head; before a lane waits for anything
// it asks for eight pieces of 16 bytes, four rows of 2 states, two of 4, or one of 8, and for an
// lse. That is 4 KB a warp, and 112 KB an SM.
//
// Tiles lie along tokens, not heads: the lse of neighbouring tokens, which a lane each asks for,
// are neighbours in memory, and tiles are full whatever the number of heads. A block's warps take
// neighbouring heads, so that its rows are neighbours too.
//
// A lane reads all that it needs of an element before it writes it, and a warp all lse of a row, so
// that the result may be one of the states.
#pragma once

#include "abi/merge.hpp"
#include "ptx/copy.cuh"
#include "ptx/math.cuh"
#include "ptx/threads.cuh"
#include "softmax/lanes.cuh"

namespace rapt::device {

struct F32 {};

// Thread blocks that an SM holds: as many as need no spills.
constexpr int kMergeBlocks = 7;

// Elements of a piece of 16 bytes.
template <class From>
constexpr int kWidePiece = kMergePieceBytes / 2;
template <>
constexpr int kWidePiece<F32> = kMergePieceBytes / 4;

// kElems elements of a row from d on, in as many registers as they have bytes.
template <class Element, int kElems>
struct Piece {
  u32 pairs[(kElems + 1) / 2];
  METHOD void load(const u8* row, int d) {
    if constexpr (kElems == kWidePiece<Element>) {
      const Quad q = load_coherent_16(row + 2 * d);
      pairs[0] = q.x, pairs[1] = q.y, pairs[2] = q.z, pairs[3] = q.w;
    } else if constexpr (kElems == 2) {
      pairs[0] = float_bits(load_coherent_f32(row + 2 * d));
    } else {
      pairs[0] = load_coherent_2(row + 2 * d);
    }
  }
  METHOD float operator[](int i) const {
    return i % 2 ? Element::high(pairs[i / 2]) : Element::low(pairs[i / 2]);
  }
};
template <int kElems>
struct Piece<F32, kElems> {
  float x[kElems];
  METHOD void load(const u8* row, int d) {
    if constexpr (kElems == kWidePiece<F32>) {
      const Quad q = load_coherent_16(row + 4 * d);
      x[0] = bits_float(q.x), x[1] = bits_float(q.y);
      x[2] = bits_float(q.z), x[3] = bits_float(q.w);
    } else {
#pragma unroll
      for (int i = 0; i < kElems; i++) x[i] = load_coherent_f32(row + 4 * (d + i));
    }
  }
  METHOD float operator[](int i) const {
    return x[i];
  }
};

// As many elements as a piece has, whichever type it is of.
template <int kElems>
DEVICE void store_piece(F32, u8* row, int d, const float (&x)[kElems]) {
  if constexpr (kElems % 4 == 0) {
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
DEVICE void store_piece(Element, u8* row, int d, const float (&x)[kElems]) {
  if constexpr (kElems == 8)
    store_global_16(row + 2 * d, {Element::pack(x[0], x[1]), Element::pack(x[2], x[3]),
                                  Element::pack(x[4], x[5]), Element::pack(x[6], x[7])});
  else if constexpr (kElems == 4)
    store_global_8(row + 2 * d, Element::pack(x[0], x[1]), Element::pack(x[2], x[3]));
  else if constexpr (kElems == 2)
    store_global_4(row + 2 * d, Element::pack(x[0], x[1]));
  else
    store_global_2(row + 2 * d, static_cast<u16>(Element::pack(x[0], 0)));
}

// The tile of a warp, and what a lane does for it: the pieces at its elements of rows group,
// group + groups, ...; and the weight of one state of one row.
struct TilePart {
  u32 token, head;  // of row 0
  int num_rows;     // as many as there are: of the last tile of a head fewer, behind it none
  int tile_tokens, groups;
  int lane, group;  // within the group that shares a row
  int weighed_row, weighed_state;

  METHOD i64 offset(int row, i64 token_stride, i64 head_stride) const {
    return (token + row) * token_stride + head * head_stride;
  }
};
template <int kRows>
DEVICE TilePart part_of_tile(const MergeStatesParams& params) {
  // Anew for all states that are merged at once: there are no registers to keep it in.
  const u32 index = anew(block_index_x() * kMergeWarps + warp_index()), lane = anew(lane_index());
  const u32 lanes_log2 = params.tiles.lanes_log2, groups = kWarpLanes >> lanes_log2;
  const u32 tile_tokens = kRows * groups, num_heads = params.num_heads;
  const u32 tile = index / num_heads, token = tile * tile_tokens;
  const u32 rows_left = params.num_tokens - min(token, static_cast<u32>(params.num_tokens));
  return {.token = token,
          .head = index - tile * num_heads,
          .num_rows = static_cast<int>(min(rows_left, tile_tokens)),
          .tile_tokens = static_cast<int>(tile_tokens),
          .groups = static_cast<int>(groups),
          .lane = static_cast<int>(lane & ((1 << lanes_log2) - 1)),
          .group = static_cast<int>(lane >> lanes_log2),
          .weighed_row = static_cast<int>(lane & (tile_tokens - 1)),
          .weighed_state = static_cast<int>((lane << lanes_log2) / (kRows * kWarpLanes))};
}

// The states so far: the rows' in pieces, the rest of the row that a lane weighs.
template <int kRows, int kElems>
struct Merged {
  float top = -infinity(), sum = 0;
  float out[kRows][kElems] = {};
};

// kStates states from `s` on come to those before, in the elements from `first` on that a warp
// takes at once; the result is written behind the last.
template <class From, class To, int kStates, int kRows, int kElems>
DEVICE void merge_states_of_tile(const MergeStatesParams& params, int first, int s,
                                 Merged<kRows, kElems>& merged) {
  const TilePart part = part_of_tile<kRows>(params);
  const int d = first + kElems * part.lane;
  const bool is_weighed = part.weighed_state < kStates && part.weighed_row < part.num_rows;

  Piece<From, kElems> pieces[kRows][kStates];
#pragma unroll
  for (int j = 0; j < kStates; j++) {
    const MergeState& state = params.states[s + j];
    const u8* row =
        state.out + part.offset(part.group, state.out_token_stride, state.out_head_stride);
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      if (s + j < params.num_states && d < params.head_dim &&
          r * part.groups + part.group < part.num_rows)
        pieces[r][j].load(row, d);
      row += part.groups * state.out_token_stride;
    }
  }
  // Behind the pieces: its lanes read the parameters of different states, one after the other.
  float lse = -infinity();
  if (is_weighed && s + part.weighed_state < params.num_states) {
    const MergeState& state = params.states[s + part.weighed_state];
    lse = load_coherent_f32(
        state.lse + part.offset(part.weighed_row, state.lse_token_stride, state.lse_head_stride));
  }

  if (lse == infinity()) lse = -infinity();
  // Lanes of one row are tile_tokens apart. fmaxf drops a NaN, which weighs everything below.
  float top = fmaxf(merged.top, lse);
#pragma unroll
  for (int j = 1; j < kStates; j *= 2) top = fmaxf(top, shuffle_xor(top, j * part.tile_tokens));
  float weight = lse == -infinity() ? 0 : exp2_fast((lse - top) * kLog2E), sum = weight;
#pragma unroll
  for (int j = 1; j < kStates; j *= 2) sum += shuffle_xor(sum, j * part.tile_tokens);
  float weight_before = merged.sum == 0 ? 0 : merged.sum * exp2_fast((merged.top - top) * kLog2E);
  merged.top = top, merged.sum = sum += weight_before;
  const float norm = sum == 0 ? 0 : 1 / sum;
  weight *= norm, weight_before *= norm;

  const bool is_last = s + kStates >= params.num_states;
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    const int row = r * part.groups + part.group;
    float(&out)[kElems] = merged.out[r];
    const float before = s == 0 ? 0 : bits_float(shuffle(float_bits(weight_before), row));
    // -0 + x is x, also of a zero with a sign.
    const float begin = bits_float(shuffle(float_bits(sum == 0 ? 0 : -0.0f), row));
#pragma unroll
    for (int e = 0; e < kElems; e++) out[e] = before != 0 ? before * out[e] : begin;
#pragma unroll
    for (int j = 0; j < kStates; j++) {
      const float its = bits_float(shuffle(float_bits(weight), row + j * part.tile_tokens));
#pragma unroll
      for (int e = 0; e < kElems; e++)
        if (its != 0) out[e] = fmaf(its, pieces[r][j][e], out[e]);
    }
    if (is_last && d < params.head_dim && row < part.num_rows)
      store_piece(To{},
                  params.out + part.offset(row, params.out_token_stride, params.out_head_stride), d,
                  out);
  }
  if (params.lse && is_last && first + (kElems << params.tiles.lanes_log2) >= params.head_dim) {
    sync_warp();  // all have read the states' lse, of which it may be one
    if (is_weighed && part.weighed_state == 0)
      store_global_f32(params.lse + part.offset(part.weighed_row, params.lse_token_stride,
                                                params.lse_head_stride),
                       sum == 0 ? -infinity() : top + log2_fast(sum) * kLn2);
  }
}

template <class From, class To, int kElems, int kStates>
DEVICE void merge_tile(const MergeStatesParams& params) {
  for (int first = 0; first < params.head_dim; first += kElems << params.tiles.lanes_log2) {
    Merged<kMergeLoads / kStates, kElems> merged;
    int s = 0;
    do {
      merge_states_of_tile<From, To, kStates>(params, first, s, merged);
      s += kStates;
    } while (kStates == kMergeLoads && s < params.num_states);
  }
}

template <class From, class To>
DEVICE void merge_states(const MergeStatesParams& params) {
  constexpr int kWide = kWidePiece<From>;
  const MergeTiles& tiles = params.tiles;
  if (tiles.elems == kWide && tiles.states_at_once == 2)
    merge_tile<From, To, kWide, 2>(params);
  else if (tiles.elems == kWide && tiles.states_at_once == 4)
    merge_tile<From, To, kWide, 4>(params);
  else if (tiles.elems == kWide)
    merge_tile<From, To, kWide, kMergeLoads>(params);
  else if (tiles.elems == 2)
    merge_tile<From, To, 2, kMergeLoads>(params);
  else
    merge_tile<From, To, 1, kMergeLoads>(params);
}

}  // namespace rapt::device
