// Prefill on AMX tiles, transposed: S^T = K Q^T, O^T = V^T P^T. Then the softmax never crosses
// lanes, P becomes a right operand with one shuffle, and K is a left operand as it lies in the
// cache. Other dtypes are AVX-512's.
//
// A chunk of keys, all of them if they fit, is packed for all rows of the pass and stays in L2; 32
// rows at a time pass over it with their Q, S and P in L1. It is one pipeline over (group of rows,
// group of keys): while the softmax of a key group runs on the vector ports, two keys after each
// product, the tiles score the next key group and add a share of the previous key block's P V to O.
#pragma once

#include "backends/cpu/amx_rows-inl.hpp"
#include "backends/cpu/amx_tiles-inl.hpp"
#include "backends/cpu/isa/tables.hpp"

namespace rapt::cpu {
namespace {

// The rows against all keys of the work.
struct AmxPass : AmxRows {
  // Keys whose probabilities wait for V: groups of one block.
  struct Waiting {
    int row = 0, key = 0, groups = 0;
    int slot = 0;            // of P
    int next_dim_pair = 0;   // O's tiles before it have them
    bool ends_rows = false;  // its rows see nothing after them
  };

  int chunk = 0, chunk_end = 0;  // the keys that are packed, all or some of them
  Waiting waiting{};
  int leaving = -1;  // rows whose O is complete: it is written before other rows' takes its place
  Accumulators tiles{};

  void run() {
    reset();
    const Range all = all_keys();
    for (int row = 0; row < count; row += kRowGroup)
      if (num_steps(row, all) <= 0) {
        clear_outputs(row);
        write_rows(row);
      }
    for (chunk = all.begin / kKeyBlock * kKeyBlock; chunk < all.end; chunk = chunk_end) {
      chunk_end = chunk + (one_chunk ? scratch.whole : scratch.chunk);
      const Range keys{larger(all.begin, chunk), smaller(all.end, chunk_end)};
      pack_chunk(keys);
      // As many pairs of keys as end with the products of a group's scores, for common sizes.
      if (scratch.steps >= 4)
        attend<1>(keys);
      else if (scratch.steps >= 2)
        attend<2>(keys);
      else
        attend<4>(keys);
    }
  }

  void pack_chunk(Range keys) const {
    if (problem.custom_mask)
      mark_seen(problem, request, work, {scratch.rows[0].token, scratch.rows[count - 1].token + 1},
                chunk, keys, scratch.seen);
    const KeyBlock packed{chunk, keys, problem.custom_mask ? scratch.seen : nullptr};
    int key = keys.begin / kKeyGroup * kKeyGroup;
    for (KeyGroup here(problem, request, head, packed, key); key < keys.end; key += kKeyGroup) {
      const KeyGroup next(problem, request, head, packed, key + kKeyGroup);
      for (int i = 0; i < kKeyGroup; i++) {
        prefetch(next.keys[i], 2 * problem.head_dim_qk);
        prefetch(next.values[i], 2 * problem.head_dim_vo);
      }
      pack_key_tiles(problem, here.keys, key - chunk, scratch);
      pack_value_tiles(problem, here.values, key - chunk, scratch);
      here = next;
    }
  }

  // The first step of the next group of rows, from `row` on, that sees any of the keys.
  Place first_step(int row, Range keys) const {
    for (; row < count; row += kRowGroup) {
      const Range own = seen_by(row, keys);
      if (own.begin < own.end) return {row, own.begin, own.end};
    }
    return {count, 0, 0};
  }
  Place step_after(Place here, Range keys) const {
    if (!here.is_last()) return {here.row, here.key + kKeyGroup, here.end};
    return first_step(here.row + kRowGroup, keys);
  }

  // After the last scores of a group of rows: the next group's Q takes the place of theirs.
  void follow(Place at, Range keys) {
    if (!at.is_last()) return;
    const Place next = first_step(at.row + kRowGroup, keys);
    if (next.row < count) begin_rows(next);
  }

  // All rows against the packed chunk.
  template <int kPortion>
  void attend(Range keys) {
    Place here = first_step(0, keys);
    Nothing nothing;
    if (here.row < count) {
      begin_rows(here);
      plan_look_ahead(here, keys);
      score(here, 0, nothing);
      follow(here, keys);
    }
    tiles.flush();
    Waiting block{here.row, here.key};  // that is being filled
    for (int slot = 0; here.row < count; slot ^= 1) {
      const Place next = step_after(here, keys);
      const bool leaves = next.row != here.row, ends_block = leaves || next.key % kKeyBlock == 0;
      look_ahead();
      apply_rules(here, slot);
      if (begins_rows(here))
        for (int tile = 0; tile < 2; tile++) raise_unseen(here, slot, block, tile);

      auto low = pass_of<kPortion>(here, slot, block.slot, 0);
      if (next.row < count)
        score(next, slot ^ 1, low);
      else
        tiles.flush();
      const Sums low_sums = low.finish();
      if (next.row < count) follow(next, keys);

      // Shares of equal size, and none left when the block ends.
      const int share = (here.key % kKeyBlock / kKeyGroup + 1) * scratch.dim_pairs / kBlockGroups;
      const int dim_pairs = ends_block ? scratch.dim_pairs : share;
      make_room(dim_pairs);
      auto high = pass_of<kPortion>(here, slot, block.slot, 1);
      accumulate(dim_pairs, high);
      const Sums high_sums = high.finish();

      settle(here, slot, block, 0, low_sums);
      settle(here, slot, block, 1, high_sums);
      block.groups++;
      if (ends_block) {
        leave(waiting);
        waiting = block;
        waiting.ends_rows = leaves && last_row(here.row).keys.end <= chunk_end;
        block = {next.row, next.key, 0, block.slot ^ 1};
      }
      if (leaves && next.row < count) plan_look_ahead(next, keys);
      here = next;
    }
    tiles.flush();
    make_room(scratch.dim_pairs);
    accumulate(scratch.dim_pairs, nothing);
    tiles.flush();
    if (waiting.ends_rows) write_rows(waiting.row);
    waiting = {};
    leaving = -1;
  }

  // S of a step, into a slot.
  template <typename Beside>
  RAPT_ALWAYS_INLINE void score(Place at, int slot, Beside& beside) {
    const int panel = scratch.steps * kTileElements;  // of 16 keys or rows
    const BFloat* const q = queries_of(at.row);
    const BFloat* const k = scratch.keys + (at.key - chunk) / 16 * panel;
    tiles.add(scores_of(slot), false, k, k + panel, q, q + panel, scratch.steps, beside);
  }

  // O += P V of the waiting keys, for tiles of dims before the given pair.
  template <typename Beside>
  RAPT_ALWAYS_INLINE void accumulate(int end, Beside& beside) {
    constexpr int kPanel = kBlockGroups * kTileElements;  // of 16 dims or rows
    const int group = waiting.key % kKeyBlock / kKeyGroup;
    if (waiting.groups == 0 || waiting.next_dim_pair >= end) return tiles.flush();
    const BFloat* const p = probabilities_of(waiting.slot, 0, group);
    const auto add = [&](int pair, auto& what) RAPT_ALWAYS_INLINE {
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

  // After a block's P V: if it is the last of its rows, O is complete, but for tiles that the next
  // products push out.
  void leave(const Waiting& block) {
    leaving = -1;
    if (!block.ends_rows) return;
    if (work.partial >= 0) {
      tiles.flush();
      return write_rows(block.row);
    }
    end_rows(block.row);
    leaving = block.row;
  }
  // Writes what leaves from where accumulate() is about to put O, up to the given pair: a part in
  // each step, which the processor can run beside products.
  void make_room(int end) const {
    for (int pair = waiting.next_dim_pair; pair < end && leaving >= 0; pair++)
      write_dims(leaving, pair);
  }
  // Whether there is nothing in O yet: of keys that rows see, these are the first.
  bool is_first(const Waiting& block) const {
    return block.key <= scratch.rows[block.row].keys.begin;
  }

  // Takes a row tile's pass into the sums, unless some row needs another one.
  void settle(Place at, int slot, const Waiting& block, int tile, Sums sums) {
    const int row = at.row + tile * 16;
    const Mask large = less_equal(set1(kLargeShift), abs(load(scratch.max + row)));
    if (any(either(large, too_low(row, sums)))) sums = pass_again(at, slot, block, tile);
    store(scratch.sum + row, load(scratch.sum + row) + sums.exact);
    store(scratch.rounded_sum + row, load(scratch.rounded_sum + row) + sums.rounded);
  }

  // Rows whose maximum lags too far behind for these sums, or that had seen nothing before.
  Mask too_low(int row, const Sums& sums) const {
    return either(less(set1(kMaxGroupSum), sums.exact),
                  less_equal(load(scratch.max + row), set1(kMinusInfinity)));
  }
  // Not inlined, nor raise(): what is rare would take registers from the steps.
  [[gnu::noinline]] Sums pass_again(Place at, int slot, const Waiting& block, int tile) {
    const auto pass = [&] {
      return pass_of<1>(at, slot, block.slot, tile).finish_with_large_shifts();
    };
    raise_unseen(at, slot, block, tile);
    const Sums sums = pass();
    const Mask low = too_low(at.row + tile * 16, sums);
    if (!any(low)) return sums;
    raise(at, slot, block, tile, low, kKeyGroup);
    return pass();
  }

  // The first shift of rows that have seen nothing: the same whichever rows are in their group.
  void raise_unseen(Place at, int slot, const Waiting& block, int tile) {
    const Vec max = load(scratch.max + at.row + tile * 16);
    raise(at, slot, block, tile, less_equal(max, set1(kMinusInfinity)), kFirstKeys);
  }

  // Raises those rows' maxima to that of so many keys. They are whole numbers, so what was computed
  // with the old ones is scaled by powers of 2, exactly, wherever it is on its way.
  [[gnu::noinline]] void raise(Place at, int slot, const Waiting& block, int tile, Mask low,
                               int num_keys) {
    const int row = at.row + tile * 16;
    const float* const s = scores_of(slot) + tile * (kHomeStride * kTileFloats);
    Vec tops[4] = {load(s), load(s + 16), load(s + 32), load(s + 48)};
    for (int key = 4; key < num_keys; key++) tops[key % 4] = max(load(s + key * 16), tops[key % 4]);
    const Vec top = max(max(tops[0], tops[1]), max(tops[2], tops[3]));
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
    rescale_probabilities(block);
    if (is_first(block)) return;
    tiles.flush();
    const bool begun = waiting.row == at.row && waiting.groups > 0 && is_first(waiting);
    for (int pair = 0; pair < (begun ? waiting.next_dim_pair : scratch.dim_pairs); pair++)
      rescale(outputs_of(at.row, pair) + tile * (kHomeStride * kTileFloats), 32);
    if (waiting.row == at.row) rescale_probabilities(waiting);
  }
};

inline void amx_prefill(const Problem& problem, const Request& request, const Work& work,
                        const Partials& partials, std::byte* base) {
  if (problem.dtype != DType::kBFloat16 || !tiles_permitted())
    return kAvx512Bf16Kernels.prefill(problem, request, work, partials, base);
  const AmxScratch scratch(problem, base);
  begin_tiles({});
  for (int head = work.kv_head_begin; head < work.kv_head_end; head++)
    for (int row = work.row_begin; row < work.row_end; row += scratch.max_rows)
      AmxPass{{problem, request, work, partials, scratch, head, row,
               smaller(scratch.max_rows, work.row_end - row), score_rule(problem, head)}}
          .run();
  end_tiles();
}

inline size_t amx_scratch_bytes(const Problem& problem) {
  return larger(AmxScratch(problem, nullptr).bytes,
                kAvx512Bf16Kernels.prefill_scratch_bytes(problem));
}

}  // namespace
}  // namespace rapt::cpu
