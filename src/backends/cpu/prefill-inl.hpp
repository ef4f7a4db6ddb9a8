// Attention of many rows: FlashAttention's blocking (Dao et al. 2022) for one core.
//
// For every block of keys, K and V are packed once for all rows of the work; then a block of rows
// at a time makes
//   S = Q K^T     [rows, keys]  panel of keys by panel, which stays in L1 while the rows pass by
//   P             softmax of S, row by row, bf16 or fp32 as the product with V wants it
//   O += P V      [rows, Dvo]   panel of dims by panel
// Bytes: K and V are read once per kMaxRows rows; O moves through L2 once per block of keys. Flops
// decide: 4 Dqk per (row, key), at the dot or FMA rate; softmax adds about a tenth at Dqk = 128.
// Blocks of keys begin at multiples of their size, so a row's bits don't depend on its neighbours.
#pragma once

#include "backends/cpu/kernels.hpp"
#include "backends/cpu/pack-inl.hpp"
#include "backends/cpu/softmax-inl.hpp"
#include "backends/cpu/tile-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr int kRowBlock = 96;                    // rows whose Q, S, P and O stay in L2 together
constexpr int kMaxPrefillRows = 24 * kRowBlock;  // of one call
constexpr int kStateBytes = 1152 * 1024;         // of O kept between blocks of keys

// Shapes that follow from a problem, and where everything lies in the scratch.
template <typename Products>
struct PrefillScratch {
  using Element = typename Products::Element;
  int key_block, units, value_dims, max_rows, score_stride, probability_stride;
  Element *keys, *values, *queries, *probabilities;
  float *scores, *outputs;
  RowState* states;
  uint32_t* seen;
  size_t bytes;

  PrefillScratch(const Problem& problem, std::byte* base) {
    key_block = larger(problem.head_dim_qk, problem.head_dim_vo) <= 256 ? 256 : 128;
    units = problem.head_dim_qk / Products::kStep;
    value_dims = round_up_to(problem.head_dim_vo, kWidth);
    max_rows = larger(kStateBytes / (4 * value_dims) / kRowBlock, 1) * kRowBlock;
    // A cache line more than a power of two: rows of a tile fall into different sets.
    score_stride = key_block + 16;
    probability_stride = key_block + 16 * Products::kStep;
    bytes = 0;
    // With fp32 products the probabilities take the place of the scores.
    constexpr bool kInPlace = Products::kStep == 1;
    const auto place = [&]<typename U>(U*& pointer, size_t count) {
      pointer = base ? reinterpret_cast<U*>(base + bytes) : nullptr;
      bytes += (count * sizeof(U) + 63) / 64 * 64;
    };
    place(keys, size_t{1} * key_block * problem.head_dim_qk);
    place(values, size_t{1} * key_block * value_dims);
    place(queries, size_t{1} * max_rows * problem.head_dim_qk);
    place(scores, size_t{1} * kRowBlock * score_stride);
    place(probabilities, kInPlace ? 0 : size_t{1} * kRowBlock * probability_stride);
    place(outputs, size_t{1} * max_rows * value_dims);
    place(states, max_rows);
    place(seen, key_block / 32);
    if constexpr (kInPlace) probabilities = scores;
  }
};

// One KV head's rows [first, first + count), count <= max_rows, against all keys of the work.
template <typename T>
struct PrefillPass {
  using Products = typename ProductsOf<T>::Type;
  using Element = typename Products::Element;
  static constexpr int kStep = Products::kStep;

  const Problem& problem;
  const Request& request;
  const Work& work;
  const PrefillScratch<Products>& scratch;
  int head, first, count;
  ScoreRule rule;

  int token_of(int row) const { return (first + row) / problem.group; }
  Range visible(int row, int last_row) const {
    return visible_range(problem, request, work, token_of(row), token_of(last_row));
  }

  void run() const {
    for (int row = 0; row < count; row++) scratch.states[row] = {kMinusInfinity, 0};
    float* const o = scratch.outputs;
    for (int i = 0; i < round_up_to(count, kTileRows) * scratch.value_dims; i += kWidth)
      store(o + i, zero());

    pack_queries<T, Products>(problem, request, head, first, count, scratch.queries);
    const Range all = visible(0, count - 1);
    for (int block = all.begin / scratch.key_block * scratch.key_block; block < all.end;
         block += scratch.key_block) {
      pack_block(block, all);
      for (int row = 0; row < count; row += kRowBlock) {
        attend(row, smaller(kRowBlock, count - row), block);
        prefetch_next(row, block + scratch.key_block, all);
      }
    }
  }

  // The next block's keys, a share after each of the last few blocks of rows: pages lie anywhere,
  // and no hardware prefetcher follows the page table. Earlier, O would push them out of L2 again.
  void prefetch_next(int row, int block, Range all) const {
    constexpr int kShares = 4;
    const int left = (count - 1) / kRowBlock - row / kRowBlock;
    const int keys = smaller(all.end - block, scratch.key_block);
    if (keys <= 0 || left >= kShares) return;
    const int share = kShares - 1 - left;
    prefetch_keys<T>(problem, request, head, block + keys * share / kShares,
                     block + keys * (share + 1) / kShares);
  }

  void pack_block(int block, Range all) const {
    const Range keys{larger(all.begin, block), smaller(all.end, block + scratch.key_block)};
    if (problem.custom_mask) mark_seen(block, keys);
    const KeyBlock packed{block, keys, problem.custom_mask ? scratch.seen : nullptr};
    const int from = (keys.begin - block) / kPanel * kPanel;
    const int to = round_up_to(keys.end - block, kPanel);
    pack_keys<T, Products>(problem, request, head, packed, from, to, scratch.keys);
    pack_values<T, Products>(problem, request, head, packed, from, to, scratch.key_block,
                             scratch.values);
  }

  // A bit for each key of the block that the custom mask shows to some row.
  void mark_seen(int block, Range keys) const {
    for (int i = 0; i < scratch.key_block / 32; i++) scratch.seen[i] = 0;
    for (int token = token_of(0); token <= token_of(count - 1); token++) {
      const Range own = visible_range(problem, request, work, token, token);
      const Range here{larger(own.begin, keys.begin), smaller(own.end, keys.end)};
      for (int key = here.begin; key < here.end;) {
        const int bit = (key - block) % 32, n = smaller(32 - bit, here.end - key);
        scratch.seen[(key - block) / 32] |= mask_bits(problem, request, token, key, n) << bit;
        key += n;
      }
    }
  }

  // Rows [row, row + rows) of the pass against the packed block.
  void attend(int row, int rows, int block) const {
    const Range any = within_block(visible(row, row + rows - 1), block);
    if (any.begin >= any.end) return;
    const Element* const queries = scratch.queries + row * problem.head_dim_qk;

    for (int panel = any.begin / kPanel * kPanel; panel < any.end; panel += kPanel)
      for (int tile = 0; tile < rows; tile += kTileRows) {
        const Range keys = tile_keys(row, rows, tile, block);
        if (panel < keys.begin || panel >= keys.end) continue;
        multiply_tile<Products, kTileVecs, false>(
            queries + tile * problem.head_dim_qk, problem.head_dim_qk,
            scratch.keys + panel * problem.head_dim_qk, scratch.units,
            scratch.scores + tile * scratch.score_stride + panel, scratch.score_stride);
      }

    for (int tile = 0; tile < rows; tile += kTileRows) {
      const Range keys = tile_keys(row, rows, tile, block);
      for (int i = tile; i < smaller(tile + kTileRows, rows); i++) soften(row + i, i, block, keys);
    }

    for (int dim = 0; dim < scratch.value_dims; dim += kPanel) {
      const int width = smaller(kPanel, scratch.value_dims - dim);
      for (int tile = 0; tile < rows; tile += kTileRows) {
        const Range keys = tile_keys(row, rows, tile, block);
        if (keys.begin >= keys.end) continue;
        accumulate_tile<Products>(
            width / kWidth, scratch.probabilities + tile * p_stride() + keys.begin, p_stride(),
            scratch.values + dim * scratch.key_block + keys.begin * width,
            (keys.end - keys.begin) / kStep,
            scratch.outputs + int64_t{row + tile} * scratch.value_dims + dim, scratch.value_dims);
      }
    }
  }

  int p_stride() const { return kStep == 1 ? scratch.score_stride : scratch.probability_stride; }

  Range within_block(Range keys, int block) const {
    return {larger(keys.begin - block, 0), smaller(keys.end - block, scratch.key_block)};
  }

  // Whole panels of the block that hold what the tile's rows see.
  Range tile_keys(int row, int rows, int tile, int block) const {
    const int last = smaller(tile + kTileRows, rows) - 1;
    const Range keys = within_block(visible(row + tile, row + last), block);
    if (keys.begin >= keys.end) return {0, 0};
    return {keys.begin / kPanel * kPanel, round_up_to(keys.end, kPanel)};
  }

  // Softmax of a row, and what it does to the row's output.
  void soften(int row, int slot, int block, Range tile) const {
    const int member = (first + row) % problem.group;
    float* const o = scratch.outputs + int64_t{row} * scratch.value_dims;
    prefetch(o, 4 * scratch.value_dims);
    const Row self{token_of(row), head * problem.group + member,
                   within_block(visible(row, row), block)};
    const float rescale = softmax_row<T, Products>(
        rule, problem, request, self, block, tile, scratch.scores + slot * scratch.score_stride,
        scratch.probabilities + slot * p_stride(), scratch.states[row]);
    if (rescale == 1) return;
    for (int dim = 0; dim < scratch.value_dims; dim += kWidth)
      store(o + dim, load(o + dim) * set1(rescale));
  }
};

// Normalises a row, adds the sink, and writes it where the work says.
template <typename T>
inline void write_row(const Problem& problem, const Request& request, const Work& work,
                      const Partials& partials, int head, int row, const float* o, RowState state,
                      float factor) {
  const int query_head = head * problem.group + row % problem.group;
  const bool partial = work.partial >= 0;
  float max = state.max * factor, sum = state.sum;
  float weight = 1;  // of what has been summed, against the sink
  if (problem.sinks && !partial) {
    const float sink = problem.sinks[query_head] * kLog2E;
    const float top = larger(max, sink);
    if (top > kMinusInfinity) {
      weight = __builtin_exp2f(max - top);
      sum = sum * weight + __builtin_exp2f(sink - top);
      max = top;
    }
  }
  const float lse = sum == 0 ? kMinusInfinity : (max + __builtin_log2f(sum)) * kLn2;
  float norm = sum == 0 ? 0 : weight / sum;
  if (problem.v_scale) norm *= problem.v_scale[problem.scales_per_head ? head : 0];

  const int dims = problem.head_dim_vo;
  if (partial) {
    const int64_t index = work.partial +
                          int64_t{head - work.kv_head_begin} * (work.row_end - work.row_begin) +
                          row - work.row_begin;
    float* const out = partials.out + index * partials.out_stride;
    for (int dim = 0; dim < dims; dim += kWidth)
      store(out + dim, load(o + dim) * set1(norm), first_lanes(dims - dim));
    partials.lse[index] = lse;
    return;
  }
  const int64_t token = request.query_start + row / problem.group;
  T* const out = reinterpret_cast<T*>(problem.out + token * problem.out_token_stride +
                                      query_head * problem.out_head_stride);
  // + 0: a hidden key's probability 0 may have turned a -0 into 0.
  for (int dim = 0; dim < dims; dim += kWidth)
    store(out + dim, load(o + dim) * set1(norm) + zero(), first_lanes(dims - dim));
  if (problem.lse)
    *reinterpret_cast<float*>(reinterpret_cast<std::byte*>(problem.lse) +
                              query_head * problem.lse_head_stride +
                              token * problem.lse_token_stride) = lse;
}

template <typename T>
void prefill_rows(const Problem& problem, const Request& request, const Work& work,
                  const Partials& partials, std::byte* base) {
  const PrefillScratch<typename ProductsOf<T>::Type> scratch(problem, base);
  for (int head = work.kv_head_begin; head < work.kv_head_end; head++)
    for (int row = work.row_begin; row < work.row_end; row += scratch.max_rows) {
      const int count = smaller(scratch.max_rows, work.row_end - row);
      const ScoreRule rule = score_rule(problem, head);
      PrefillPass<T>{problem, request, work, scratch, head, row, count, rule}.run();
      for (int i = 0; i < count; i++)
        write_row<T>(problem, request, work, partials, head, row + i,
                     scratch.outputs + int64_t{i} * scratch.value_dims, scratch.states[i],
                     rule.factor());
    }
}

inline void prefill(const Problem& problem, const Request& request, const Work& work,
                    const Partials& partials, std::byte* scratch) {
  switch (problem.dtype) {
    case DType::kFloat32:
      return prefill_rows<float>(problem, request, work, partials, scratch);
    case DType::kFloat16:
      return prefill_rows<Half>(problem, request, work, partials, scratch);
    default:
      return prefill_rows<BFloat>(problem, request, work, partials, scratch);
  }
}

inline size_t prefill_scratch_bytes(const Problem& problem) {
  if (problem.dtype == DType::kBFloat16)
    return PrefillScratch<ProductsOf<BFloat>::Type>(problem, nullptr).bytes;
  return PrefillScratch<FloatProducts>(problem, nullptr).bytes;
}

}  // namespace
}  // namespace rapt::cpu
