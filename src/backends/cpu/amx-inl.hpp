// Prefill on AMX tiles, transposed: S^T = K Q^T, O^T = V^T P^T. Then the softmax never crosses
// lanes, P becomes a right operand with one permutation, and K is a left operand as it lies in the
// cache. Other dtypes are AVX-512's.
//
// A chunk of keys is packed for all rows of the pass and stays in L2; 32 rows at a time pass over
// it with their Q, S and P in L1. A store that misses L1 costs as much as a product, so S is only
// as large as two groups of 32 keys: one that is being scored while the softmax of the other runs
// on the vector ports between the products. O, which L1 cannot hold beside them, is taken up once
// per kKeyBlock keys.
#pragma once

#include "backends/cpu/amx_softmax-inl.hpp"
#include "backends/cpu/epilogue-inl.hpp"
#include "backends/cpu/isa/tables.hpp"

namespace rapt::cpu {
namespace {

// Tiles 0 1 / 2 3 += left tiles 4, 5 times right tiles 6, 7, `count` of each one after the other.
// between() is called after each step, 64 cycles of products (kBoth) or 32.
template <bool kBoth, typename Between>
inline void multiply_tiles(const BFloat* a0, const BFloat* a1, const BFloat* b0, const BFloat* b1,
                           int count, const Between& between) {
  for (int i = 0; i < count * kTileElements; i += kTileElements) {
    tile_load<6>(b0 + i, kTileBytes);
    tile_load<4>(a0 + i, kTileBytes);
    tile_load<7>(b1 + i, kTileBytes);
    tile_dot_bf16<0, 4, 6>();
    tile_dot_bf16<1, 4, 7>();
    if constexpr (kBoth) {
      tile_load<5>(a1 + i, kTileBytes);
      tile_dot_bf16<2, 5, 6>();
      tile_dot_bf16<3, 5, 7>();
    }
    between();
  }
}

// Tiles 0 to 3, or 0 and 1, to neighbouring places.
template <bool kAll>
inline void store_tiles(float* to) {
  tile_store<0>(to, kTileBytes);
  tile_store<1>(to + kTileFloats, kTileBytes);
  if constexpr (kAll) {
    tile_store<2>(to + 2 * kTileFloats, kTileBytes);
    tile_store<3>(to + 3 * kTileFloats, kTileBytes);
  }
}

// One KV head's rows [first, first + count), count <= max_rows, against all keys of the work.
struct AmxPass {
  const Problem& problem;
  const Request& request;
  const Work& work;
  const Partials& partials;
  const AmxScratch& scratch;
  int head, first, count;
  ScoreRule rule;

  void run() const {
    const int padded = round_up_to(count, kRowGroup);
    for (int row = 0; row < padded; row++) {
      const int real = first + smaller(row, count - 1), token = real / problem.group;
      scratch.rows[row] = {token, head * problem.group + real % problem.group,
                           visible_range(problem, request, work, token)};
      scratch.max[row] = kMinusInfinity;
      scratch.sum[row] = scratch.rounded_sum[row] = 0;
    }
    for (int i = 0; i < padded * 16 * scratch.dim_tiles; i += kWidth)
      store(scratch.outputs + i, zero());
    pack_query_tiles(problem, request, head, first, count, scratch);

    const Range all{scratch.rows[0].keys.begin, scratch.rows[count - 1].keys.end};
    for (int chunk = all.begin / scratch.chunk * scratch.chunk; chunk < all.end;
         chunk += scratch.chunk) {
      const Range keys{larger(all.begin, chunk), smaller(all.end, chunk + scratch.chunk)};
      pack_chunk(chunk, keys);
      for (int row = 0; row < count; row += kRowGroup) {
        attend(row, chunk, keys);
        prefetch_next(row, chunk + scratch.chunk, all);
      }
    }
    for (int row = 0; row < count; row += 16) write_rows(row);
  }

  void pack_chunk(int chunk, Range keys) const {
    if (problem.custom_mask)
      mark_seen(problem, request, work, {scratch.rows[0].token, scratch.rows[count - 1].token + 1},
                chunk, keys, scratch.seen);
    const KeyBlock packed{chunk, keys, problem.custom_mask ? scratch.seen : nullptr};
    const int from = (keys.begin - chunk) / kKeyGroup * kKeyGroup;
    const int to = round_up_to(keys.end - chunk, kKeyGroup);
    pack_key_tiles(problem, request, head, packed, from, to, scratch);
    pack_value_tiles(problem, request, head, packed, from, to, scratch);
  }

  // A share of the next chunk's keys after each group of rows: pages lie anywhere, and no hardware
  // prefetcher follows the page table.
  void prefetch_next(int row, int chunk, Range all) const {
    const int64_t keys = smaller(all.end - chunk, scratch.chunk);
    if (keys <= 0) return;
    const int groups = (count + kRowGroup - 1) / kRowGroup, group = row / kRowGroup;
    prefetch_keys<BFloat>(problem, request, head, chunk + static_cast<int>(keys * group / groups),
                          chunk + static_cast<int>(keys * (group + 1) / groups));
  }

  // A group of rows against the packed chunk, key group by key group.
  void attend(int row, int chunk, Range keys) const {
    const int last = smaller(row + kRowGroup, count) - 1;
    const int begin = larger(keys.begin, scratch.rows[row].keys.begin) / kKeyGroup * kKeyGroup;
    const int end = smaller(keys.end, scratch.rows[last].keys.end);
    if (begin >= end) return;
    // Keys of softmax a step of products, so that both end together.
    const int portion = round_up_to((kKeyGroup + scratch.steps - 1) / scratch.steps, 2);

    int waiting = begin, slot = 0;  // the first key whose probabilities wait for V
    score(row, chunk, begin, slot, [] {});
    for (int key = begin; key < end; key += kKeyGroup, slot ^= 1) {
      apply_rules(row, key, slot);
      SoftmaxPass softmax = pass_of(row, key, slot);
      if (key + kKeyGroup < end)
        score(row, chunk, key + kKeyGroup, slot ^ 1, [&] { softmax.advance(portion); });
      softmax.finish();
      if (any(grown(row, softmax, 0)) || any(grown(row, softmax, 1))) {
        accumulate(row, chunk, {waiting, key});
        waiting = key;
        rescale(row, softmax);
        softmax = pass_of(row, key, slot);
        softmax.finish();
      }
      add_sums(row, softmax);
      const int next = key + kKeyGroup;
      if (next % kKeyBlock == 0 || next >= end) {
        accumulate(row, chunk, {waiting, next});
        waiting = next;
      }
    }
  }

  float* scores_of(int slot) const { return scratch.scores + slot * (4 * kTileFloats); }
  // P [2 row tiles][kKeyBlock / 32] of the key's block, from the key's group on.
  BFloat* probabilities_of(int key) const {
    return scratch.probabilities + key % kKeyBlock / kKeyGroup * kTileElements;
  }
  float* outputs_of(int row) const { return scratch.outputs + row * 16 * scratch.dim_tiles; }

  // S of the key group that begins with `key`, into a slot: [2 key tiles][2 row tiles].
  template <typename Between>
  void score(int row, int chunk, int key, int slot, const Between& between) const {
    const int panel = scratch.steps * kTileElements;  // of 16 keys or rows
    const BFloat* const q = scratch.queries + row / 16 * panel;
    const BFloat* const k = scratch.keys + (key - chunk) / 16 * panel;
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    multiply_tiles<true>(k, k + panel, q, q + panel, scratch.steps, between);
    store_tiles<true>(scores_of(slot));
  }

  // O += P V for keys of one block: whole key groups.
  void accumulate(int row, int chunk, Range keys) const {
    if (keys.begin >= keys.end) return;
    int dim = 0;
    for (; dim + 2 <= scratch.dim_tiles; dim += 2) accumulate_dims<true>(row, chunk, keys, dim);
    if (dim < scratch.dim_tiles) accumulate_dims<false>(row, chunk, keys, dim);
  }

  // Dim tiles dim and, if kBoth, dim + 1.
  template <bool kBoth>
  void accumulate_dims(int row, int chunk, Range keys, int dim) const {
    constexpr int kStride = kKeyBlock / kKeyGroup * kTileElements;  // of a dim or row tile
    const BFloat* const v = scratch.values +
                            ((keys.begin - chunk) / kKeyBlock * scratch.dim_tiles + dim) * kStride +
                            keys.begin % kKeyBlock / kKeyGroup * kTileElements;
    const BFloat* const p = probabilities_of(keys.begin);
    float* const o = outputs_of(row) + dim * 2 * kTileFloats;
    tile_load<0>(o, kTileBytes);
    tile_load<1>(o + kTileFloats, kTileBytes);
    if constexpr (kBoth) {
      tile_load<2>(o + 2 * kTileFloats, kTileBytes);
      tile_load<3>(o + 3 * kTileFloats, kTileBytes);
    }
    multiply_tiles<kBoth>(v, v + kStride, p, p + kStride, (keys.end - keys.begin) / kKeyGroup,
                          [] {});
    store_tiles<kBoth>(o);
  }

  void apply_rules(int row, int key, int slot) const {
    for (int tile = 0; tile < 2; tile++) {
      const Row* const rows = scratch.rows + row + tile * 16;
      const bool whole = rows[15].keys.begin <= key && rows[0].keys.end >= key + kKeyGroup;
      if (rule.in_advance || problem.custom_mask || !whole)
        apply(rule, problem, request, rows, key, scores_of(slot) + tile * kTileFloats);
    }
  }

  SoftmaxPass pass_of(int row, int key, int slot) const {
    const Vec max[2] = {load(scratch.max + row), load(scratch.max + row + 16)};
    return {scores_of(slot), probabilities_of(key), rule.factor(), max};
  }

  void add_sums(int row, const SoftmaxPass& softmax) const {
    for (int tile = 0; tile < 2; tile++) {
      float* const sum = scratch.sum + row + tile * 16;
      float* const rounded = scratch.rounded_sum + row + tile * 16;
      store(sum, load(sum) + softmax.sum(tile));
      store(rounded, load(rounded) + softmax.rounded_sum(tile));
    }
  }

  // Rows of a tile whose maximum has grown too far for the pass to count.
  Mask grown(int row, const SoftmaxPass& softmax, int tile) const {
    const Vec max = load(scratch.max + row + tile * 16);
    return less(max + set1(kMaxLag), softmax.top(tile) * set1(rule.factor()));
  }

  // Raises those rows' maxima. Sums and outputs of the others are multiplied by exactly 1.
  void rescale(int row, const SoftmaxPass& softmax) const {
    for (int tile = 0; tile < 2; tile++) {
      float* const max = scratch.max + row + tile * 16;
      float* const sum = scratch.sum + row + tile * 16;
      const Vec old = load(max), top = softmax.top(tile) * set1(rule.factor());
      const Mask mask = grown(row, softmax, tile);
      const Vec factor = select(mask, exp2_accurate(old - top), set1(1.0f));
      store(max, select(mask, top, old));
      float* const rounded = scratch.rounded_sum + row + tile * 16;
      store(sum, load(sum) * factor);
      store(rounded, load(rounded) * factor);
      float* const o = outputs_of(row) + tile * kTileFloats;
      for (int dim = 0; dim < 16 * scratch.dim_tiles; dim++) {
        float* const at = o + dim / 16 * 2 * kTileFloats + dim % 16 * 16;
        store(at, load(at) * factor);
      }
    }
  }

  void write_rows(int row) const {
    const int dims = 16 * scratch.dim_tiles;
    // A weighted mean needs the sum of the very weights: this takes their rounding out of O, so
    // that a row with one dominant key gets its value exactly, wherever the maximum lags.
    const Vec sum = load(scratch.sum + row), rounded = load(scratch.rounded_sum + row);
    const Vec factor = select(less(zero(), rounded), sum / rounded, set1(1.0f));
    const float* const o =
        outputs_of(row / kRowGroup * kRowGroup) + row % kRowGroup / 16 * kTileFloats;
    for (int dim = 0; dim < dims; dim += 16) {
      Vec r[kWidth];
      for (int i = 0; i < 16; i++) r[i] = load(o + dim * 2 * 16 + i * 16) * factor;
      transpose(r);
      for (int i = 0; i < 16; i++) store(scratch.lines + i * dims + dim, r[i]);
    }
    for (int i = 0; i < smaller(16, count - row); i++)
      write_row<BFloat>(problem, request, work, partials, head, first + row + i,
                        scratch.lines + i * dims, {scratch.max[row + i], scratch.sum[row + i]}, 1);
  }
};

inline void amx_prefill(const Problem& problem, const Request& request, const Work& work,
                        const Partials& partials, std::byte* base) {
  if (problem.dtype != DType::kBFloat16 || !tiles_permitted())
    return kAvx512Bf16Kernels.prefill(problem, request, work, partials, base);
  const AmxScratch scratch(problem, base);
  begin_tiles();
  for (int head = work.kv_head_begin; head < work.kv_head_end; head++)
    for (int row = work.row_begin; row < work.row_end; row += scratch.max_rows)
      AmxPass{problem,
              request,
              work,
              partials,
              scratch,
              head,
              row,
              smaller(scratch.max_rows, work.row_end - row),
              score_rule(problem, head)}
          .run();
  end_tiles();
}

inline void amx_decode(const Problem& problem, const Request& request, const Work& work,
                       const Partials& partials, std::byte* scratch) {
  kAvx512Bf16Kernels.decode(problem, request, work, partials, scratch);
}

inline size_t amx_scratch_bytes(const Problem& problem) {
  return larger(AmxScratch(problem, nullptr).bytes,
                kAvx512Bf16Kernels.prefill_scratch_bytes(problem));
}

}  // namespace
}  // namespace rapt::cpu
