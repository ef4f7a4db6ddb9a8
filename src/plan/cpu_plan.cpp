#include "plan/cpu_plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.hpp"
#include "problem/visibility.hpp"

namespace rapt::cpu {
namespace {

// Bytes to and from the cache that partial results live in, and to repack K and V.
constexpr double kCacheBytesPerNs = 20;
// Setting up a kernel call.
constexpr double kCallNs = 300;
// A range shorter than this is not worth waking a thread for.
constexpr double kMinRangeNs = 4000;
// Threads differ in speed by about this much (clocks, neighbours, interrupts).
constexpr double kSpeedSpread = 0.05;
constexpr double kMaxRangesPerThread = 8;
// A piece takes at least this many times as long as its partial results do.
constexpr double kMinPieceToPartial = 4;
// The prefill kernel's block of rows: tiles are a multiple of it.
constexpr int64_t kMinTileRows = 96;
// Keys of a prefill unit are cut only where whole units would leave threads idle for more than this
// share of the time, and then those of so many targets: pieces are merged.
constexpr double kMaxIdle = 0.1, kWholeUnit = 1.5;
// Pieces begin at absolute multiples of at least this many keys, the longest block of a kernel.
constexpr int64_t kKeyAlign = 64;
// Kernels number rows in 32 bits, and round a number up to the end of its block.
constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max() - 0xffff;
// The machine that batch_invariant cuts for.
constexpr int32_t kNominalThreads = 16;

// A spec in the units of the cost model. One thread; "key" is a key of one KV head.
struct Costs {
  Window band;
  int64_t group, heads;
  int64_t key_align;
  double read_ns;     // K and V of a key from memory
  double pack_ns;     // repacking them, in prefill
  double row_ns;      // one row against one key
  double partial_ns;  // one row's state, cleared and written, and its part of the merge
  int64_t max_tile_rows;

  Costs(const AttentionSpec& spec, const Machine& machine) {
    const double dims = spec.head_dim_qk + spec.dim_vo();
    const double key_bytes = dims * static_cast<double>(size_of(spec.dtype));
    band = spec.visible_band();
    group = spec.group();
    heads = spec.num_kv_heads;
    key_align = spec.page_size > 0 && spec.page_size < kKeyAlign
                    ? round_up(kKeyAlign, spec.page_size)
                    : kKeyAlign;
    read_ns = key_bytes / machine.read_bytes_per_ns;
    pack_ns = 2 * key_bytes / kCacheBytesPerNs;
    row_ns = 2 * dims / machine.flops_per_ns;
    partial_ns = 6 * sizeof(float) * (spec.dim_vo() + 1) / kCacheBytesPerNs;
    max_tile_rows = machine.max_prefill_rows;
  }

  double key_ns(Phase phase, int64_t rows) const {
    const double compute = row_ns * static_cast<double>(rows);
    return phase == Phase::kDecode ? std::max(read_ns, compute) : pack_ns + compute;
  }
};

using Lengths = WorkList::Lengths;

// Keys that rows [begin, end) see on average, and all of them.
double mean_keys(const Costs& costs, const Lengths& lengths, int64_t row_begin, int64_t row_end) {
  auto keys_of = [&](int64_t row) {
    return visible_keys(costs.band, row / costs.group, lengths.query_len, lengths.kv_len).size();
  };
  return 0.5 * static_cast<double>(keys_of(row_begin) + keys_of(row_end - 1));
}

KeyRange all_keys(const Costs& costs, const Lengths& lengths, int64_t row_begin, int64_t row_end) {
  return visible_keys(costs.band, row_begin / costs.group, (row_end - 1) / costs.group + 1,
                      lengths.query_len, lengths.kv_len);
}

// Written in place: what is built and copied waits for its own stores.
void find_lengths(const Costs& costs, const Batch& batch, int64_t b, int64_t max_decode_rows,
                  Lengths& lengths) {
  lengths.index = b;
  lengths.query_len = batch.query_len(b);
  lengths.kv_len = batch.kv_len[b];
  lengths.rows = lengths.query_len * costs.group;
  check(lengths.rows <= kMaxRows, "query_len[", b, "] is ", lengths.query_len, " with ",
        costs.group, " query heads per KV head: their product may be at most ", kMaxRows);
  lengths.phase = lengths.rows <= max_decode_rows ? Phase::kDecode : Phase::kPrefill;
  lengths.ns = 0;
  if (lengths.rows == 0) return;
  lengths.keys = all_keys(costs, lengths, 0, lengths.rows);
  const double keys = lengths.phase == Phase::kDecode ? static_cast<double>(lengths.keys.size())
                                                      : mean_keys(costs, lengths, 0, lengths.rows);
  lengths.ns =
      kCallNs + keys * static_cast<double>(costs.heads) * costs.key_ns(lengths.phase, lengths.rows);
}

// Ranges a machine should cut work of `ns` into: with n for each thread the last thread is late by
// about a spread / n of its time, and each range may cost one more split.
int64_t choose_num_ranges(const Costs& costs, double ns, int32_t num_threads) {
  if (num_threads <= 1) return 1;
  const double split_ns =
      kCallNs + costs.partial_ns * static_cast<double>(costs.heads * costs.group);
  const double per_thread =
      std::clamp(std::sqrt(kSpeedSpread * ns / num_threads / split_ns), 1.0, kMaxRangesPerThread);
  const double wanted = num_threads * std::floor(per_thread);
  return static_cast<int64_t>(std::clamp(ns / kMinRangeNs, 1.0, wanted));
}

class Planner {
 public:
  Planner(const Costs& costs, WorkList& list) : costs_(costs), list_(list) {}

  // Units of one request: of decode none much longer than `target` if that can be had without
  // cutting keys, of prefill for threads that have `thread_ns` of work each.
  void add_units(const Lengths& lengths, double target, double thread_ns) {
    if (lengths.rows == 0) return;
    if (lengths.phase == Phase::kDecode)
      add_decode_units(lengths, target);
    else
      add_prefill_units(lengths, thread_ns);
  }

  // Cuts unit i, which lies at [position, position + ns) of a line, at the line's multiples of
  // `target`. Adds its pieces to the works; range_of(ns before the middle of a piece) is called for
  // each.
  template <typename PlaceWork>
  void cut(const WorkList::Unit& unit, double position, double target, PlaceWork place) {
    const size_t first = list_.works.size();
    const int64_t keys = unit.work.key_end - unit.work.key_begin;
    Work piece = unit.work;
    double done = 0;  // ns
    if (unit.work.phase == Phase::kDecode || unit.ns > kWholeUnit * target) {
      const auto cuts_before = static_cast<int64_t>(position / target);
      for (double at = static_cast<double>(cuts_before + 1) * target; at < position + unit.ns;
           at += target) {
        const double share = (at - position) / unit.ns;
        const int64_t key =
            round_up(unit.work.key_begin + static_cast<int64_t>(share * static_cast<double>(keys)),
                     costs_.key_align);
        if (static_cast<double>(key - piece.key_begin) < unit.min_piece_keys) continue;
        if (static_cast<double>(unit.work.key_end - key) < unit.min_piece_keys) break;
        piece.key_end = static_cast<int32_t>(key);
        const double ns =
            unit.ns * static_cast<double>(key - piece.key_begin) / static_cast<double>(keys);
        place(done + ns / 2);
        list_.works.push_back(piece);
        done += ns;
        piece.key_begin = static_cast<int32_t>(key);
      }
    }
    piece.key_end = unit.work.key_end;
    place((done + unit.ns) / 2);
    list_.works.push_back(piece);
    if (list_.works.size() - first > 1) add_merge(first);
    if (keys > kMaxChainKeys) note_folds(first);
  }

 private:
  void add_decode_units(const Lengths& lengths, double target) {
    const KeyRange keys = lengths.keys;
    const double key_ns = costs_.key_ns(Phase::kDecode, lengths.rows);
    // All KV heads together read a page in one run. Heads are parted only where the keys are too
    // few for the pieces that the threads want.
    int64_t blocks = 1;
    if (lengths.ns > target) {
      const double wanted = std::ceil(lengths.ns / target);
      const double shortest = std::max(min_piece_keys(costs_.heads, lengths.rows, key_ns),
                                       static_cast<double>(costs_.key_align));
      const double pieces = std::max(1.0, static_cast<double>(keys.size()) / shortest);
      if (pieces < wanted)
        blocks = std::min(costs_.heads, static_cast<int64_t>(std::ceil(wanted / pieces)));
    }
    for (int64_t i = 0; i < blocks; i++)
      add_unit(lengths, keys, i * costs_.heads / blocks, (i + 1) * costs_.heads / blocks, 0,
               lengths.rows, static_cast<double>(keys.size()));
  }

  // Threads wait for the last unit, and differ in speed: shares of the time that this takes with so
  // many units for each of them.
  static double most_units(double mean) { return std::ceil(mean - 1e-6); }
  static double idle_share(double units) { return most_units(units) / units - 1; }
  static double spread_share(double units) { return kSpeedSpread / most_units(units); }

  // For each KV head: a tile more packs all keys once more, but units fill the threads better.
  int64_t choose_num_tiles(const Lengths& lengths, int64_t least, int64_t most,
                           double thread_ns) const {
    const double pack_ns = kCallNs + costs_.pack_ns * static_cast<double>(lengths.keys.size());
    const double head_ns = lengths.ns / static_cast<double>(costs_.heads);
    int64_t best = least;
    double best_cost = std::numeric_limits<double>::infinity(), units = 0;
    for (int64_t tiles = least; tiles <= most && units < kMaxRangesPerThread; tiles++) {
      units = thread_ns * static_cast<double>(tiles) / head_ns;
      const double cost =
          static_cast<double>(tiles) * pack_ns / head_ns + idle_share(units) + spread_share(units);
      if (cost < best_cost) best = tiles, best_cost = cost;
    }
    return best;
  }

  void add_prefill_units(const Lengths& lengths, double thread_ns) {
    const int64_t block = std::min(kMinTileRows, costs_.max_tile_rows);
    const int64_t longest = costs_.max_tile_rows / block * block;
    const int64_t num_tiles = choose_num_tiles(lengths, ceil_div(lengths.rows, longest),
                                               ceil_div(lengths.rows, block), thread_ns);
    const double units = thread_ns * static_cast<double>(costs_.heads * num_tiles) / lengths.ns;
    const bool whole = idle_share(units) <= kMaxIdle;
    // Tiles of one size, to a block: each packs all its keys, also one that would be a small rest.
    const auto end_of = [&](int64_t tiles) {
      return std::min(round_up(lengths.rows * tiles / num_tiles, block), lengths.rows);
    };
    for (int64_t head = 0; head < costs_.heads; head++)
      for (int64_t tile = 0; tile < num_tiles; tile++) {
        const int64_t row = end_of(tile), row_end = end_of(tile + 1);
        if (row < row_end)
          add_unit(lengths, all_keys(costs_, lengths, row, row_end), head, head + 1, row, row_end,
                   mean_keys(costs_, lengths, row, row_end), whole);
      }
  }

  void add_unit(const Lengths& lengths, KeyRange keys, int64_t head_begin, int64_t head_end,
                int64_t row_begin, int64_t row_end, double mean, bool whole = false) {
    const int64_t heads = head_end - head_begin, rows = row_end - row_begin;
    const double key_ns = costs_.key_ns(lengths.phase, rows);
    list_.units.push_back({
        .work = {.request = static_cast<int32_t>(lengths.index),
                 .kv_head_begin = static_cast<int32_t>(head_begin),
                 .kv_head_end = static_cast<int32_t>(head_end),
                 .row_begin = static_cast<int32_t>(row_begin),
                 .row_end = static_cast<int32_t>(row_end),
                 .key_begin = static_cast<int32_t>(keys.begin),
                 .key_end = static_cast<int32_t>(keys.end),
                 .phase = lengths.phase,
                 .partial = -1},
        .ns = kCallNs + mean * static_cast<double>(heads) * key_ns,
        .min_piece_keys =
            whole ? std::numeric_limits<double>::infinity() : min_piece_keys(heads, rows, key_ns),
    });
  }

  double min_piece_keys(int64_t heads, int64_t rows, double key_ns) const {
    const double partial_ns = kCallNs + costs_.partial_ns * static_cast<double>(heads * rows);
    return kMinPieceToPartial * partial_ns / (static_cast<double>(heads) * key_ns);
  }

  // Works [first, end) are the pieces of one unit.
  void add_merge(size_t first) {
    const Work& work = list_.works[first];
    const int64_t rows = work.num_rows();
    list_.merges.push_back({.request = work.request,
                            .kv_head_begin = work.kv_head_begin,
                            .kv_head_end = work.kv_head_end,
                            .row_begin = work.row_begin,
                            .row_end = work.row_end,
                            .num_parts = static_cast<int32_t>(list_.works.size() - first),
                            .partial = list_.num_partial_rows,
                            .first_row = list_.num_merged_rows});
    list_.num_merged_rows += rows;
    for (size_t i = first; i < list_.works.size(); i++) {
      list_.works[i].partial = list_.num_partial_rows;
      list_.num_partial_rows += rows;
    }
  }

  // Works [first, end) may be so long that they are folded.
  void note_folds(size_t first) {
    for (size_t i = first; i < list_.works.size(); i++)
      if (list_.works[i].is_folded())
        list_.most_folded_rows = std::max(list_.most_folded_rows, list_.works[i].num_rows());
  }

  const Costs& costs_;
  WorkList& list_;
};

void lay_out_workspace(const AttentionSpec& spec, const Machine& machine, WorkList& list) {
  auto align = [](int64_t bytes) { return round_up(bytes, int64_t{64}); };
  const int64_t row_bytes = align(spec.dim_vo() * int64_t{sizeof(float)});
  size_t scratch_bytes = 0;  // what the phases of this step need
  for (const Lengths& lengths : list.lengths) {
    if (lengths.rows == 0) continue;
    scratch_bytes =
        std::max(scratch_bytes, lengths.phase == Phase::kDecode ? machine.decode_scratch_bytes
                                                                : machine.prefill_scratch_bytes);
  }
  list.partial_stride = row_bytes / int64_t{sizeof(float)};
  list.fold_offset = static_cast<size_t>(align(static_cast<int64_t>(scratch_bytes)));
  const int64_t scratch = static_cast<int64_t>(list.fold_offset) +
                          FoldLayout(list.most_folded_rows, list.partial_stride).bytes;
  list.num_slots = std::min(machine.num_threads, list.num_ranges());
  const int64_t out_offset = checked_mul(list.num_slots, scratch, "workspace");
  const int64_t lse_offset = checked_add(
      out_offset, checked_mul(list.num_partial_rows, row_bytes, "workspace"), "workspace");
  list.scratch_stride = static_cast<size_t>(scratch);
  list.partial_out_offset = static_cast<size_t>(out_offset);
  list.partial_lse_offset = static_cast<size_t>(lse_offset);
  list.workspace_bytes =
      static_cast<size_t>(lse_offset + align(list.num_partial_rows * int64_t{sizeof(float)}));
}

}  // namespace

Machine machine_of(const DeviceInfo& device, const AttentionSpec& spec) {
  // One core's attention rate, GFLOP/s: fp32 FMA, and the 16-bit dot products where there are any.
  double flops_per_ns = 8;
  if (device.isa >= CpuIsa::kAvx2) flops_per_ns = 60;
  if (device.isa >= CpuIsa::kAvx512) flops_per_ns = 120;
  if (spec.dtype == DType::kBFloat16) {
    if (device.isa >= CpuIsa::kAvx512Bf16) flops_per_ns = 300;
    if (device.isa >= CpuIsa::kAmxBf16) flops_per_ns = 700;
  }
  return {.num_threads = device.num_cores, .flops_per_ns = flops_per_ns};
}

void plan_work(const Batch& batch, const AttentionSpec& spec, const Machine& machine,
               WorkList& list) {
  const Costs costs(spec, machine);
  list.works.clear();
  list.merges.clear();
  list.ranges.clear();
  list.num_merged_rows = list.num_partial_rows = list.most_folded_rows = 0;
  Planner planner(costs, list);

  double total = 0;
  list.lengths.resize(static_cast<size_t>(batch.num_requests()));
  for (int64_t b = 0; b < batch.num_requests(); b++) {
    Lengths& lengths = list.lengths[static_cast<size_t>(b)];
    find_lengths(costs, batch, b, machine.max_decode_rows, lengths);
    total += lengths.ns;
  }
  const double range_ns = std::max(total, 1.0) /
                          static_cast<double>(choose_num_ranges(costs, total, machine.num_threads));

  double request_position = 0;
  int64_t last_range = -1;
  for (const Lengths& lengths : list.lengths) {
    // As if alone on the nominal machine, or with the whole step on this one.
    double target = range_ns, thread_ns = total / machine.num_threads;
    if (spec.batch_invariant) {
      target =
          lengths.ns / static_cast<double>(choose_num_ranges(costs, lengths.ns, kNominalThreads));
      thread_ns = lengths.ns / kNominalThreads;
    }
    list.units.clear();
    planner.add_units(lengths, target, thread_ns);
    double position = request_position;
    for (const WorkList::Unit& unit : list.units) {
      const double line = spec.batch_invariant ? position - request_position : position;
      planner.cut(unit, line, target, [&](double middle) {
        const int64_t range = static_cast<int64_t>((position + middle) / range_ns);
        if (range != last_range) list.ranges.push_back(static_cast<int32_t>(list.works.size()));
        last_range = range;
      });
      position += unit.ns;
    }
    request_position = position;
  }
  list.ranges.push_back(static_cast<int32_t>(list.works.size()));
  lay_out_workspace(spec, machine, list);
}

}  // namespace rapt::cpu
