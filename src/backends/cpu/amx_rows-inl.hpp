// The rows of a pass over the keys, in groups of 32: what they see, where their S, P and O lie, and
// what happens to them in vectors.
#pragma once

#include "backends/cpu/amx_softmax-inl.hpp"
#include "backends/cpu/epilogue-inl.hpp"

namespace rapt::cpu {
namespace {

// A group of rows and the first key of a group of keys: a step of the pipeline.
struct Place {
  int row, key;
  int end;  // of the chunk's keys that the rows see
  bool is_last() const { return key + kKeyGroup >= end; }
};

// A row's first shift is the maximum of so many scores, with few of which the rest rarely differs
// by more than the shift may lag.
constexpr int kFirstKeys = 8;

// One KV head's rows [first, first + count), count <= max_rows.
struct AmxRows {
  const Problem& problem;
  const Request& request;
  const Work& work;
  const Partials& partials;
  const AmxScratch& scratch;
  int head, first, count;
  ScoreRule rule;
  bool one_chunk = false;  // of all keys: Q and O are kept for one group of rows only
  // What O of a group of rows is multiplied with when it is complete.
  alignas(64) float norms[kRowGroup] = {};
  // What look_ahead() asks for, from row `asked` of a group on, a portion a step: Q (null: none)
  // and the lines of so many results.
  const BFloat* const* next_sources = nullptr;
  BFloat* const* next_targets = nullptr;
  int num_targets = 0, asked = 0, portion = 1;

  void reset() {
    const int padded = round_up_to(count, kRowGroup);
    for (int row = 0, token = first / problem.group; row < count; token++) {
      const Range keys = visible_range(problem, request, work, token);
      const int end = smaller((token + 1) * problem.group - first, count);
      int query_head = head * problem.group + (first + row) % problem.group;
      const int64_t at = request.query_start + token;
      const std::byte* q =
          problem.q + at * problem.q_token_stride + query_head * problem.q_head_stride;
      std::byte* out =
          problem.out + at * problem.out_token_stride + query_head * problem.out_head_stride;
      for (; row < end; row++, query_head++) {
        scratch.rows[row] = {token, query_head, keys};
        scratch.sources[row] = reinterpret_cast<const BFloat*>(q);
        scratch.targets[row] = reinterpret_cast<BFloat*>(out);
        q += problem.q_head_stride;
        out += problem.out_head_stride;
      }
    }
    for (int row = count; row < padded; row++) {
      scratch.rows[row] = scratch.rows[count - 1];
      scratch.sources[row] = scratch.sources[count - 1];
      scratch.targets[row] = nullptr;
    }
    for (int row = 0; row < padded; row += kWidth) {
      store(scratch.max + row, set1(kMinusInfinity));
      store(scratch.sum + row, zero());
      store(scratch.rounded_sum + row, zero());
    }
    const Range all = all_keys();
    one_chunk = all.end - all.begin / kKeyBlock * kKeyBlock <= scratch.whole;
  }
  // Keys that some row sees.
  Range all_keys() const { return {scratch.rows[0].keys.begin, scratch.rows[count - 1].keys.end}; }
  const Row& last_row(int row) const { return scratch.rows[row + kRowGroup - 1]; }
  // Keys of the chunk's `keys` that a group of rows sees, whole groups of keys.
  Range seen_by(int row, Range keys) const {
    return {larger(keys.begin, scratch.rows[row].keys.begin) / kKeyGroup * kKeyGroup,
            smaller(keys.end, last_row(row).keys.end)};
  }
  int num_steps(int row, Range keys) const {
    const Range own = seen_by(row, keys);
    return (own.end - own.begin + kKeyGroup - 1) / kKeyGroup;
  }

  // S and O: [2 row tiles][2 tiles of keys or dims], row tiles kHomeStride tiles apart.
  float* scores_of(int slot) const { return scratch.scores + slot * (2 * kTileFloats); }
  BFloat* probabilities_of(int slot, int tile, int group) const {
    return scratch.probabilities + ((slot * 2 + tile) * kBlockGroups + group) * kTileElements;
  }
  RAPT_ALWAYS_INLINE float* outputs_of(int row, int dim_pair) const {
    return scratch.outputs +
           (kept(row) * round_up_to(scratch.dim_pairs, 2) + dim_pair / 2 * 2) * (4 * kTileFloats) +
           dim_pair % 2 * (2 * kTileFloats);
  }
  RAPT_ALWAYS_INLINE BFloat* queries_of(int row) const {
    return scratch.queries + kept(row) * 2 * scratch.steps * kTileElements;
  }
  // Where among the groups of rows whose Q and O are kept this one is.
  int kept(int row) const { return one_chunk ? 0 : row / kRowGroup; }

  // Whether a group of rows has taken no step before.
  bool begins_rows(Place at) const { return at.key <= scratch.rows[at.row].keys.begin; }
  // Packs Q when a group of rows takes its first step: then it is in L1.
  void begin_rows(Place at) const {
    if (!begins_rows(at)) return;
    for (int tile = 0; tile < 2; tile++)
      pack_query_tiles(scratch.sources + at.row + tile * 16, problem.head_dim_qk, scratch.steps,
                       queries_of(at.row) + tile * scratch.steps * kTileElements);
    if (rule.query_exponent != 0)
      scale_queries(queries_of(at.row), int64_t{2} * scratch.steps * kTileElements,
                    rule.query_exponent);
  }
  // Before a group's first step: what begin_rows() and write_dims() will touch next, Q of the next
  // group of rows, and the lines that O of this one goes to, which must be here to be written.
  void plan_look_ahead(Place at, Range keys) {
    const int next = at.row + kRowGroup;
    const bool begins_next = next < count && keys.begin <= scratch.rows[next].keys.begin;
    const bool ends_this = last_row(at.row).keys.end <= keys.end && work.partial < 0;
    next_sources = begins_next ? scratch.sources + next : nullptr;
    next_targets = scratch.targets + at.row;
    num_targets = ends_this ? smaller(count - at.row, kRowGroup) : 0;
    asked = 0;
    // Q is packed in the last step but one.
    const int steps = larger((at.end - at.key + kKeyGroup - 1) / kKeyGroup - 2, 1);
    portion = (kRowGroup + steps - 1) / steps;
  }
  // Asks for a share of it, beside each step.
  RAPT_ALWAYS_INLINE void look_ahead() {
    for (const int end = smaller(asked + portion, kRowGroup); asked < end; asked++) {
      if (next_sources) prefetch(next_sources[asked], 2 * problem.head_dim_qk);
      if (asked < num_targets) prefetch_for_write(next_targets[asked], 2 * problem.head_dim_vo);
    }
  }
  void clear_outputs(int row) const {
    for (int i = 0; i < round_up_to(scratch.dim_pairs, 2) * 4 * kTileFloats; i += kWidth)
      store(outputs_of(row, 0) + i, zero());
  }

  // What is not just a scale, and masks, on S of a step.
  void apply_rules(Place at, int slot) const {
    const bool special = rule.in_advance || problem.custom_mask;
    if (!special && last_row(at.row).keys.begin <= at.key &&
        scratch.rows[at.row].keys.end >= at.key + kKeyGroup)
      return;
    for (int tile = 0; tile < 2; tile++) {
      const Row* const rows = scratch.rows + at.row + tile * 16;
      const bool whole = rows[15].keys.begin <= at.key && rows[0].keys.end >= at.key + kKeyGroup;
      if (special || !whole)
        apply(rule, problem, request, rows, at.key,
              scores_of(slot) + tile * (kHomeStride * kTileFloats));
    }
  }

  // The softmax of a row tile's step, from a slot of S to one of P.
  template <int kPortion>
  RAPT_ALWAYS_INLINE SoftmaxPass<kPortion> pass_of(Place at, int slot, int p_slot, int tile) const {
    const Vec max = load(scratch.max + at.row + tile * 16);
    return {scores_of(slot) + tile * (kHomeStride * kTileFloats),
            probabilities_of(p_slot, tile, at.key % kKeyBlock / kKeyGroup), rule.factor(),
            // Rows that have seen nothing: any finite shift will do.
            select(less(set1(kMinusInfinity), max), max, zero())};
  }

  // O of a group of rows to where the work says.
  void write_rows(int group) {
    if (work.partial >= 0) return write_partial_rows(group);
    end_rows(group);
    for (int pair = 0; pair < scratch.dim_pairs; pair++) write_dims(group, pair);
  }
  // What write_dims() needs of a group of rows, and their lse.
  void end_rows(int group) {
    for (int tile = 0; tile < 2; tile++) {
      const int first_row = group + tile * 16;
      const Vec own_sum = load(scratch.sum + first_row),
                rounded = load(scratch.rounded_sum + first_row);
      Vec sum = own_sum, weight = set1(1);
      if (problem.sinks || problem.lse) {
        alignas(64) float sums[16], weights[16];
        for (int i = 0; i < 16; i++) {
          const Row& row = scratch.rows[first_row + i];
          const RowEnd end = end_row(problem, work, row.query_head,
                                     {scratch.max[first_row + i], scratch.sum[first_row + i]}, 1);
          sums[i] = end.sum, weights[i] = end.weight;
          if (problem.lse && first_row + i < count)
            write_lse(problem, row.query_head, request.query_start + row.token, end);
        }
        sum = load(sums), weight = load(weights);
      }
      // A weighted mean needs the sum of the very weights: the gain takes their rounding out of O,
      // so that a row with one dominant key gets its value exactly, wherever the maximum lags.
      const Vec gain = select(less(zero(), rounded), own_sum / rounded, set1(1));
      const Vec norm = select(less_equal(abs(sum), zero()), zero(), weight / sum * gain);
      const Vec scaled = norm * set1(value_scale(problem, head));
      // Rounding to bf16 by integer adds keeps the plain NaN, but not each.
      store(norms + tile * 16,
            select(less_equal(scaled, scaled), scaled, set1(__builtin_nanf(""))));
    }
  }
  // 32 dims of a group of rows. O becomes pairs of dims in place; these turned are whole lines of
  // the result.
  void write_dims(int group, int pair) const {
    const int dim = pair * 32, dims = smaller(problem.head_dim_vo - dim, 32);
    const PairMaker maker;
    for (int tile = 0; tile < 2; tile++) {
      float* const o = outputs_of(group, pair) + tile * (kHomeStride * kTileFloats);
      BFloat* const pairs = reinterpret_cast<BFloat*>(o);  // [16 pairs][16 rows]
      const Vec norm = load(norms + tile * 16);
      for (int i = 0; i < kPairs; i++) {
        const float* const from = o + i / 8 * kTileFloats + i % 8 * 32;
        // + 0: a hidden key's probability 0 may have turned a -0 into 0.
        store(pairs + i * 32,
              maker.narrow(fma(load(from), norm, zero()), fma(load(from + 16), norm, zero())));
      }
      BFloat* const* const to = scratch.targets + group + tile * 16;
      for (int row = 0; row < 16; row += 4) {
        Pairs lines[4];
        transpose_16x4(pairs + 2 * row, lines);
        for (int i = 0; i < 4; i++) {
          if (!to[row + i]) return;
          store(to[row + i] + dim, lines[i], dims);
        }
      }
    }
  }

 private:
  void write_partial_rows(int group) const {
    const int dims = 32 * scratch.dim_pairs;
    for (int row = group; row < smaller(group + kRowGroup, count); row++) {
      if (row % 16 == 0)
        for (int dim = 0; dim < dims; dim += 16)
          transpose_16x16(outputs_of(row, dim / 32) +
                              row % kRowGroup / 16 * (kHomeStride * kTileFloats) + dim % 32 * 16,
                          scratch.lines + dim, dims);
      const float sum = scratch.sum[row], rounded = scratch.rounded_sum[row];
      write_row<BFloat>(problem, request, work, partials, head, first + row,
                        scratch.lines + row % 16 * dims, {scratch.max[row], sum}, 1,
                        rounded > 0 ? sum / rounded : 1.0f);
    }
  }
};

}  // namespace
}  // namespace rapt::cpu
