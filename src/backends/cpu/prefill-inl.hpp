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

#include "backends/cpu/epilogue-inl.hpp"
#include "backends/cpu/kernels.hpp"
#include "backends/cpu/pack-inl.hpp"
#include "backends/cpu/softmax-inl.hpp"

namespace rapt::cpu {
namespace {

// Shapes that follow from a problem, and where everything lies in the scratch.
template <typename Products>
struct PrefillScratch {
  using Element = typename Products::Element;
  using Tile = typename Products::Tile;
  // query_stride and the strides of S and P count elements of theirs.
  int key_block, units, value_dims, max_rows, query_stride, score_stride, probability_stride;
  Element *keys, *values, *queries, *probabilities;
  float *scores, *outputs;
  Row* rows;
  RowState* states;
  uint32_t* seen;
  size_t bytes;

  PrefillScratch(const Problem& problem, std::byte* base) {
    key_block = larger(problem.head_dim_qk, problem.head_dim_vo) <= 256 ? 256 : 128;
    units = num_units<Products>(problem);
    query_stride = units * Products::kStep;
    value_dims = round_up_to(problem.head_dim_vo, kWidth);
    const int row_blocks = kStateBytes / (4 * value_dims) / Tile::kRowBlock;
    max_rows = larger(row_blocks, 1) * Tile::kRowBlock;
    // A cache line more than a power of two: rows of a tile fall into different sets.
    score_stride = key_block + 16;
    // With fp32 products the probabilities take the place of the scores.
    constexpr bool kInPlace = Products::kStep == 1;
    probability_stride = kInPlace ? score_stride : key_block + 32;
    bytes = 0;
    const auto place = [&]<typename U>(U*& pointer, size_t count) {
      pointer = base ? reinterpret_cast<U*>(base + bytes) : nullptr;
      bytes += (count * sizeof(U) + 63) / 64 * 64;
    };
    place(keys, size_t{1} * key_block * query_stride);
    place(values, size_t{1} * key_block * value_dims);
    place(queries, size_t{1} * max_rows * query_stride);
    place(scores, size_t{1} * Tile::kRowBlock * score_stride);
    place(probabilities, kInPlace ? 0 : size_t{1} * Tile::kRowBlock * probability_stride);
    place(outputs, size_t{1} * max_rows * value_dims);
    place(rows, max_rows);
    place(states, max_rows);
    place(seen, key_block / 32);
    if constexpr (kInPlace) probabilities = scores;
  }
};

// One KV head's rows [first, first + count), count <= max_rows, against all keys of the work.
template <typename T, typename Products>
struct PrefillPass {
  using Tile = typename Products::Tile;
  using Element = typename Products::Element;
  static constexpr int kStep = Products::kStep;

  const Problem& problem;
  const Request& request;
  const Work& work;
  const PrefillScratch<Products>& scratch;
  int head, first, count;
  ScoreRule rule;

  // What rows [row, last_row] see: both ends of what a row sees grow with it.
  Range visible(int row, int last_row) const {
    return {scratch.rows[row].keys.begin, scratch.rows[last_row].keys.end};
  }

  void run() const {
    int token = first / problem.group, member = first % problem.group;
    for (int row = 0; row < count; row++) {
      scratch.rows[row] = {token, head * problem.group + member,
                           visible_range(problem, request, work, token)};
      scratch.states[row] = {kMinusInfinity, 0};
      if (++member == problem.group) member = 0, token++;
    }
    float* const o = scratch.outputs;
    for (int i = 0; i < round_up_to(count, Tile::kRows) * scratch.value_dims; i += kWidth)
      store(o + i, zero());

    pack_queries<T, Products>(problem, request, head, first, count, scratch.queries);
    if (rule.query_exponent != 0)
      scale_queries(scratch.queries, int64_t{count} * scratch.query_stride, rule.query_exponent);
    const Range all = visible(0, count - 1);
    for (int block = all.begin / scratch.key_block * scratch.key_block; block < all.end;
         block += scratch.key_block) {
      pack_block(block, all);
      for (int row = 0; row < count; row += Tile::kRowBlock) {
        attend(row, smaller(Tile::kRowBlock, count - row), block);
        prefetch_next(row, block + scratch.key_block, all);
      }
    }
  }

  // The next block's keys, a share after each of the last few blocks of rows: pages lie anywhere,
  // and no hardware prefetcher follows the page table. Earlier, O would push them out of L2 again.
  void prefetch_next(int row, int block, Range all) const {
    constexpr int kShares = 4;
    const int left = (count - 1) / Tile::kRowBlock - row / Tile::kRowBlock;
    const int keys = smaller(all.end - block, scratch.key_block);
    if (keys <= 0 || left >= kShares) return;
    const int share = kShares - 1 - left;
    prefetch_keys<T>(problem, request, head, block + keys * share / kShares,
                     block + keys * (share + 1) / kShares);
  }

  void pack_block(int block, Range all) const {
    const Range keys{larger(all.begin, block), smaller(all.end, block + scratch.key_block)};
    if (problem.custom_mask)
      mark_seen(problem, request, work, {scratch.rows[0].token, scratch.rows[count - 1].token + 1},
                block, keys, scratch.seen);
    const KeyBlock packed{block, keys, problem.custom_mask ? scratch.seen : nullptr};
    const int from = (keys.begin - block) / Tile::kColumns * Tile::kColumns;
    const int to = round_up_to(keys.end - block, Tile::kColumns);
    pack_keys<T, Products>(problem, request, head, packed, from, to, scratch.keys);
    pack_values<T, Products>(problem, request, head, packed, from, to, scratch.key_block,
                             scratch.values);
  }

  // Rows [row, row + rows) of the pass against the packed block.
  void attend(int row, int rows, int block) const {
    const Range any = within_block(visible(row, row + rows - 1), block);
    if (any.begin >= any.end) return;
    const Element* const queries = scratch.queries + row * scratch.query_stride;

    for (int panel = any.begin / Tile::kColumns * Tile::kColumns; panel < any.end;
         panel += Tile::kColumns)
      for (int tile = 0; tile < rows; tile += Tile::kRows) {
        const Range keys = tile_keys(row, rows, tile, block);
        if (panel < keys.begin || panel >= keys.end) continue;
        Tile::multiply(queries + tile * scratch.query_stride, scratch.query_stride,
                       scratch.keys + panel * scratch.query_stride,
                       Tile::kPacked * scratch.query_stride, scratch.units,
                       scratch.scores + tile * scratch.score_stride + panel, scratch.score_stride);
      }

    for (int tile = 0; tile < rows; tile += Tile::kRows) {
      const Range keys = tile_keys(row, rows, tile, block);
      for (int i = tile; i < smaller(tile + Tile::kRows, rows); i++)
        soften(row + i, i, block, keys);
    }

    for (int dim = 0; dim < scratch.value_dims; dim += Tile::kColumns) {
      const int columns = smaller(Tile::kColumns, scratch.value_dims - dim);
      const int packed = smaller(Tile::kPacked, columns);
      for (int tile = 0; tile < rows; tile += Tile::kRows) {
        const Range keys = tile_keys(row, rows, tile, block);
        if (keys.begin >= keys.end) continue;
        Tile::accumulate(
            columns, scratch.probabilities + tile * scratch.probability_stride + keys.begin,
            scratch.probability_stride,
            scratch.values + dim * scratch.key_block + keys.begin * packed,
            Tile::kPacked * scratch.key_block, (keys.end - keys.begin) / kStep,
            scratch.outputs + int64_t{row + tile} * scratch.value_dims + dim, scratch.value_dims);
      }
    }
  }

  Range within_block(Range keys, int block) const {
    return {larger(keys.begin - block, 0), smaller(keys.end - block, scratch.key_block)};
  }

  // Whole panels of the block that hold what the tile's rows see.
  Range tile_keys(int row, int rows, int tile, int block) const {
    const int last = smaller(tile + Tile::kRows, rows) - 1;
    const Range keys = within_block(visible(row + tile, row + last), block);
    if (keys.begin >= keys.end) return {0, 0};
    return {keys.begin / Tile::kColumns * Tile::kColumns, round_up_to(keys.end, Tile::kColumns)};
  }

  // Softmax of a row, and what it does to the row's output.
  void soften(int row, int slot, int block, Range tile) const {
    float* const o = scratch.outputs + int64_t{row} * scratch.value_dims;
    prefetch(o, 4 * scratch.value_dims);
    const float rescale = softmax_row<T, Products>(
        rule, problem, request, scratch.rows[row], block, tile,
        scratch.scores + slot * scratch.score_stride,
        scratch.probabilities + slot * scratch.probability_stride, scratch.states[row]);
    if (rescale == 1) return;
    for (int dim = 0; dim < scratch.value_dims; dim += kWidth)
      store(o + dim, load(o + dim) * set1(rescale));
  }
};

template <typename T, typename Products>
void prefill_rows(const Problem& problem, const Request& request, const Work& work,
                  const Partials& partials, std::byte* base) {
  const PrefillScratch<Products> scratch(problem, base);
  for (int head = work.kv_head_begin; head < work.kv_head_end; head++) {
    const ScoreRule rule = score_rule(problem, head);
    for (int row = work.row_begin; row < work.row_end; row += scratch.max_rows) {
      const int count = smaller(scratch.max_rows, work.row_end - row);
      PrefillPass<T, Products>{problem, request, work, scratch, head, row, count, rule}.run();
      for (int i = 0; i < count; i++)
        write_row<T>(problem, request, work, partials, head, row + i,
                     scratch.outputs + int64_t{i} * scratch.value_dims, scratch.states[i],
                     rule.factor());
    }
  }
}

// BFloatProducts: how this instruction set multiplies bf16.
template <typename BFloatProducts>
void prefill(const Problem& problem, const Request& request, const Work& work,
             const Partials& partials, std::byte* scratch) {
  switch (problem.dtype) {
    case DType::kFloat32:
      return prefill_rows<float, FloatProducts>(problem, request, work, partials, scratch);
    case DType::kFloat16:
      return prefill_rows<Half, FloatProducts>(problem, request, work, partials, scratch);
    default:
      return prefill_rows<BFloat, BFloatProducts>(problem, request, work, partials, scratch);
  }
}

template <typename BFloatProducts>
size_t prefill_scratch_bytes(const Problem& problem) {
  if (problem.dtype == DType::kBFloat16)
    return PrefillScratch<BFloatProducts>(problem, nullptr).bytes;
  return PrefillScratch<FloatProducts>(problem, nullptr).bytes;
}

}  // namespace
}  // namespace rapt::cpu
