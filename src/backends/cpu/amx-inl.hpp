// Prefill on AMX tiles, transposed: S^T = K Q^T, O^T = V^T P^T. Then the softmax never crosses
// lanes, P becomes a right operand with one shuffle, and K is a left operand as it lies in the
// cache. Other dtypes are AVX-512's.
//
// A chunk of keys is packed for all rows of the pass and stays in L2; 32 rows at a time pass over
// it with their Q, S and P in L1. It is one pipeline over (group of rows, group of keys): while the
// softmax of a key group runs on the vector ports, two keys after each product, the tiles score
// the next key group and add a share of the previous key block's P V to O.
#pragma once

#include "backends/cpu/amx_softmax-inl.hpp"
#include "backends/cpu/amx_tiles-inl.hpp"
#include "backends/cpu/epilogue-inl.hpp"
#include "backends/cpu/isa/tables.hpp"

namespace rapt::cpu {
namespace {

// One KV head's rows [first, first + count), count <= max_rows, against all keys of the work.
struct AmxPass {
  const Problem& problem;
  const Request& request;
  const Work& work;
  const Partials& partials;
  const AmxScratch& scratch;
  int head, first, count;
  ScoreRule rule;

  // A group of rows and the first key of a group of keys: a step of the pipeline.
  struct Place {
    int row, key;
  };
  // Keys whose probabilities wait for V: groups of one block.
  struct Waiting {
    int row = 0, key = 0, groups = 0;
    int slot = 0;           // of P
    int next_dim_pair = 0;  // O's tiles before it have them
  };

  int chunk = 0;  // the first key of what is packed
  Waiting waiting{};
  Accumulators tiles{};

  void run() {
    const int padded = round_up_to(count, kRowGroup);
    for (int row = 0; row < padded; row++) {
      const int real = first + smaller(row, count - 1), token = real / problem.group;
      scratch.rows[row] = {token, head * problem.group + real % problem.group,
                           visible_range(problem, request, work, token)};
      scratch.max[row] = kMinusInfinity;
      scratch.sum[row] = scratch.rounded_sum[row] = 0;
    }
    pack_query_tiles(problem, request, head, first, count, scratch);

    const Range all{scratch.rows[0].keys.begin, scratch.rows[count - 1].keys.end};
    for (int row = 0; row < count; row += kRowGroup)
      if (num_steps(row, all) <= 0) clear_outputs(row);
    for (chunk = all.begin / scratch.chunk * scratch.chunk; chunk < all.end;
         chunk += scratch.chunk) {
      const Range keys{larger(all.begin, chunk), smaller(all.end, chunk + scratch.chunk)};
      pack_chunk(keys);
      // As many pairs of keys as end with the products of a group's scores, for common sizes.
      scratch.steps >= 4 ? attend<1>(keys) : scratch.steps >= 2 ? attend<2>(keys) : attend<4>(keys);
    }
    for (int row = 0; row < count; row += 16) write_rows(row);
  }

  void pack_chunk(Range keys) const {
    if (problem.custom_mask)
      mark_seen(problem, request, work, {scratch.rows[0].token, scratch.rows[count - 1].token + 1},
                chunk, keys, scratch.seen);
    const KeyBlock packed{chunk, keys, problem.custom_mask ? scratch.seen : nullptr};
    for (int key = keys.begin / kKeyGroup * kKeyGroup; key < keys.end; key += kKeyGroup) {
      pack_key_tiles(problem, request, head, packed, key, scratch);
      pack_value_tiles(problem, request, head, packed, key, scratch);
    }
  }

  // Keys of the chunk's `keys` that a group of rows sees, whole groups of keys.
  Range seen_by(int row, Range keys) const {
    const int last = smaller(row + kRowGroup, count) - 1;
    return {larger(keys.begin, scratch.rows[row].keys.begin) / kKeyGroup * kKeyGroup,
            smaller(keys.end, scratch.rows[last].keys.end)};
  }
  int num_steps(int row, Range keys) const {
    const Range own = seen_by(row, keys);
    return (own.end - own.begin + kKeyGroup - 1) / kKeyGroup;
  }
  // The first step of the next group of rows, from `row` on, that sees any of the keys.
  Place first_step(int row, Range keys) const {
    for (; row < count; row += kRowGroup) {
      const Range own = seen_by(row, keys);
      if (own.begin < own.end) return {row, own.begin};
    }
    return {count, 0};
  }
  Place step_after(Place here, Range keys) const {
    if (here.key + kKeyGroup < seen_by(here.row, keys).end) return {here.row, here.key + kKeyGroup};
    return first_step(here.row + kRowGroup, keys);
  }

  // All rows against the packed chunk.
  template <int kPortion>
  void attend(Range keys) {
    Place here = first_step(0, keys);
    Nothing nothing;
    if (here.row < count) score(here, 0, nothing);
    tiles.flush();
    Waiting block{here.row, here.key};  // that is being filled
    for (int slot = 0; here.row < count; slot ^= 1) {
      const Place next = step_after(here, keys);
      const bool ends_block = next.row != here.row || next.key % kKeyBlock == 0;
      apply_rules(here, slot);

      auto low = pass_of<kPortion>(here, slot, block.slot, 0);
      if (next.row < count) score(next, slot ^ 1, low);
      const Sums low_sums = low.finish();

      // Shares of equal size, and none left when the block ends.
      const int share = (here.key % kKeyBlock / kKeyGroup + 1) * scratch.dim_pairs / kBlockGroups;
      auto high = pass_of<kPortion>(here, slot, block.slot, 1);
      accumulate(ends_block ? scratch.dim_pairs : share, high);
      const Sums high_sums = high.finish();

      settle(here, slot, block, 0, low_sums);
      settle(here, slot, block, 1, high_sums);
      block.groups++;
      if (ends_block) {
        waiting = block;
        block = {next.row, next.key, 0, block.slot ^ 1};
      }
      here = next;
    }
    accumulate(scratch.dim_pairs, nothing);
    tiles.flush();
    waiting = {};
  }

  // S of a step, into a slot.
  template <typename Beside>
  [[gnu::always_inline]] void score(Place at, int slot, Beside& beside) {
    const int panel = scratch.steps * kTileElements;  // of 16 keys or rows
    const BFloat* const q = scratch.queries + at.row / 16 * panel;
    const BFloat* const k = scratch.keys + (at.key - chunk) / 16 * panel;
    tiles.add(scores_of(slot), false, k, k + panel, q, q + panel, scratch.steps, beside);
  }

  // O += P V of the waiting keys, for tiles of dims before the given pair.
  template <typename Beside>
  [[gnu::always_inline]] void accumulate(int end, Beside& beside) {
    constexpr int kPanel = kBlockGroups * kTileElements;  // of 16 dims or rows
    const int group = waiting.key % kKeyBlock / kKeyGroup;
    if (waiting.groups == 0 || waiting.next_dim_pair >= end) return tiles.flush();
    const BFloat* const p = probabilities_of(waiting.slot, 0, group);
    const auto add = [&](int pair, auto& what) __attribute__((always_inline)) {
      const BFloat* const v =
          scratch.values +
          ((waiting.key - chunk) / kKeyBlock * scratch.dim_pairs + pair) * (2 * kPanel) +
          group * kTileElements;
      tiles.add(outputs_of(waiting.row, pair), !is_first(waiting), v, v + kPanel, p, p + kPanel,
                waiting.groups, what);
    };
    add(waiting.next_dim_pair++, beside);
    Nothing nothing;
    while (waiting.next_dim_pair < end) add(waiting.next_dim_pair++, nothing);
  }

  float* scores_of(int slot) const { return scratch.scores + slot * (2 * kTileFloats); }
  BFloat* probabilities_of(int slot, int tile, int group) const {
    return scratch.probabilities + ((slot * 2 + tile) * kBlockGroups + group) * kTileElements;
  }
  // [2 row tiles][2 tiles of dims]
  float* outputs_of(int row, int dim_pair) const {
    return scratch.outputs +
           (row / kRowGroup * round_up_to(scratch.dim_pairs, 2) + dim_pair / 2 * 2) *
               (4 * kTileFloats) +
           dim_pair % 2 * (2 * kTileFloats);
  }

  // Whether there is nothing in O yet: of keys that rows see, these are the first.
  bool is_first(const Waiting& block) const {
    return block.key <= scratch.rows[block.row].keys.begin;
  }
  void clear_outputs(int row) const {
    for (int i = 0; i < round_up_to(scratch.dim_pairs, 2) * 4 * kTileFloats; i += kWidth)
      store(outputs_of(row, 0) + i, zero());
  }

  void apply_rules(Place at, int slot) const {
    for (int tile = 0; tile < 2; tile++) {
      const Row* const rows = scratch.rows + at.row + tile * 16;
      const bool whole = rows[15].keys.begin <= at.key && rows[0].keys.end >= at.key + kKeyGroup;
      if (rule.in_advance || problem.custom_mask || !whole)
        apply(rule, problem, request, rows, at.key,
              scores_of(slot) + tile * (kHomeStride * kTileFloats));
    }
  }

  template <int kPortion>
  [[gnu::always_inline]] SoftmaxPass<kPortion> pass_of(Place at, int slot, int p_slot,
                                                       int tile) const {
    const Vec max = load(scratch.max + at.row + tile * 16);
    return {scores_of(slot) + tile * (kHomeStride * kTileFloats),
            probabilities_of(p_slot, tile, at.key % kKeyBlock / kKeyGroup), rule.factor(),
            // Rows that have seen nothing: any finite shift will do.
            select(less(set1(kMinusInfinity), max), max, zero())};
  }

  // Takes a row tile's pass into the sums, repeated if the maximum of some rows was too low.
  void settle(Place at, int slot, const Waiting& block, int tile, Sums sums) {
    const int row = at.row + tile * 16;
    const Mask low = either(less(set1(kMaxGroupSum), sums.exact),
                            less_equal(load(scratch.max + row), set1(kMinusInfinity)));
    if (any(low)) {
      raise(at, slot, block, tile, low);
      sums = pass_of<1>(at, slot, block.slot, tile).finish();
    }
    store(scratch.sum + row, load(scratch.sum + row) + sums.exact);
    store(scratch.rounded_sum + row, load(scratch.rounded_sum + row) + sums.rounded);
  }

  // Raises those rows' maxima to the group's. They are whole numbers, so what was computed with the
  // old ones is scaled by powers of 2, exactly, wherever it is on its way.
  void raise(Place at, int slot, const Waiting& block, int tile, Mask low) {
    const int row = at.row + tile * 16;
    const float* const s = scores_of(slot) + tile * (kHomeStride * kTileFloats);
    Vec top = load(s);
    for (int key = 1; key < kKeyGroup; key++) top = max(load(s + key * 16), top);
    const Vec old = load(scratch.max + row);
    const Vec raised = select(low, max(round_up(top * set1(rule.factor())), old), old);
    const Vec exponent = select(less(old, raised), old - raised, zero());
    const auto rescale = [&](float* x, int vectors) {
      for (int i = 0; i < vectors; i++)
        store(x + i * kWidth, scale_by_power_of_2(load(x + i * kWidth), exponent));
    };
    const auto rescale_probabilities = [&](const Waiting& keys) {
      BFloat* const p = probabilities_of(keys.slot, tile, keys.key % kKeyBlock / kKeyGroup);
      for (int i = 0; i < keys.groups * kTileElements; i += 2 * kWidth) {
        const Pairs x = load_pairs(p + i);
        store(p + i, PairMaker().narrow(scale_by_power_of_2(first_of_pairs(x), exponent),
                                        scale_by_power_of_2(second_of_pairs(x), exponent)));
      }
    };
    store(scratch.max + row, raised);
    rescale(scratch.sum + row, 1);
    rescale(scratch.rounded_sum + row, 1);
    tiles.flush();
    for (int pair = 0; pair < scratch.dim_pairs && !is_first(block); pair++)
      rescale(outputs_of(at.row, pair) + tile * (kHomeStride * kTileFloats), 32);
    rescale_probabilities(block);
    if (waiting.row == at.row) rescale_probabilities(waiting);
  }

  void write_rows(int row) const {
    const int dims = 32 * scratch.dim_pairs;
    for (int dim = 0; dim < dims; dim += 16) {
      const float* const o = outputs_of(row, dim / 32) +
                             row % kRowGroup / 16 * (kHomeStride * kTileFloats) + dim % 32 * 16;
      transpose_16x16(o, scratch.lines + dim, dims);
    }
    for (int i = 0; i < smaller(16, count - row); i++) {
      // A weighted mean needs the sum of the very weights: this takes their rounding out of O, so
      // that a row with one dominant key gets its value exactly, wherever the maximum lags.
      const float sum = scratch.sum[row + i], rounded = scratch.rounded_sum[row + i];
      write_row<BFloat>(problem, request, work, partials, head, first + row + i,
                        scratch.lines + i * dims, {scratch.max[row + i], sum}, 1,
                        rounded > 0 ? sum / rounded : 1.0f);
    }
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
