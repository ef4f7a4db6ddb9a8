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
using Tile = WorkList::Tile;

// Keys that rows [begin, end) see on average, and all of them.
double mean_keys(const Costs& costs, const Lengths& lengths, int64_t row_begin, int64_t row_end) {
  auto keys_of = [&](int64_t row) {
    return visible_keys(costs.band, row / costs.group, lengths.query_len, lengths.kv_len).size();
  };
  return 0.5 * static_cast<double>(keys_of(row_begin) + keys_of(row_end - 1));
}

KeyRange all_keys(const Costs& costs, const Lengths& lengths) {
  return visible_keys(costs.band, 0, lengths.query_len, lengths.query_len, lengths.kv_len);
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
  lengths.keys = all_keys(costs, lengths);
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

// Lays units of work on a line, one behind the other, cuts them into pieces, and these into ranges.
class Planner {
 public:
  // Ranges are range_ns long.
  Planner(const Costs& costs, double range_ns, WorkList& list)
      : costs_(costs), range_ns_(range_ns), list_(list) {}

  // From here on units are cut at the multiples of `target`, counted from here.
  void begin_line(double target) {
    target_ = target;
    line_ = 0;
    next_cut_ = target;
  }

  // Units of one request: of decode none much longer than the target if that can be had without
  // cutting keys, of prefill for threads that have `thread_ns` of work each.
  void add_units(const Lengths& lengths, double thread_ns) {
    if (lengths.rows == 0) return;
    if (lengths.phase == Phase::kDecode)
      add_decode_units(lengths);
    else
      add_prefill_units(lengths, thread_ns);
  }

 private:
  void add_decode_units(const Lengths& lengths) {
    const KeyRange keys = lengths.keys;
    // All KV heads together read a page in one run. Heads are parted only where the keys are too
    // few for the pieces that the threads want.
    int64_t blocks = 1;
    if (lengths.ns > target_) {
      const double key_ns = costs_.key_ns(Phase::kDecode, lengths.rows);
      const double wanted = std::ceil(lengths.ns / target_);
      const double shortest = std::max(min_piece_keys(costs_.heads, lengths.rows, key_ns),
                                       static_cast<double>(costs_.key_align));
      const double pieces = std::max(1.0, static_cast<double>(keys.size()) / shortest);
      if (pieces < wanted)
        blocks = std::min(costs_.heads, static_cast<int64_t>(std::ceil(wanted / pieces)));
    }
    const Tile all{0, lengths.rows, keys, static_cast<double>(keys.size())};
    for (int64_t i = 0; i < blocks; i++)
      add_unit(lengths, all, i * costs_.heads / blocks, (i + 1) * costs_.heads / blocks);
  }

  // Threads wait for the last unit, and differ in speed: shares of the time that this takes with so
  // many units for each of them.
  static double most_units(double mean) { return std::ceil(mean - 1e-6); }
  static double idle_share(double units) { return most_units(units) / units - 1; }
  static double spread_share(double units) { return kSpeedSpread / most_units(units); }

  // For each KV head: a tile more packs all keys once more, but units fill the threads better.
  int64_t choose_num_tiles(const Lengths& lengths, int64_t least, int64_t most,
                           double thread_ns) const {
    const double head_ns = lengths.ns / static_cast<double>(costs_.heads);
    if (thread_ns * static_cast<double>(least) >= kMaxRangesPerThread * head_ns) return least;
    const double pack_ns = kCallNs + costs_.pack_ns * static_cast<double>(lengths.keys.size());
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
    list_.tiles.clear();
    for (int64_t i = 0; i < num_tiles; i++) {
      const int64_t row = end_of(i), row_end = end_of(i + 1);
      if (row < row_end)
        list_.tiles.push_back({row, row_end, all_keys(costs_, lengths, row, row_end),
                               mean_keys(costs_, lengths, row, row_end)});
    }
    for (int64_t head = 0; head < costs_.heads; head++)
      for (const Tile& tile : list_.tiles) add_unit(lengths, tile, head, head + 1, whole);
  }

  // Cuts the unit where the line is to be cut, unless it is to stay whole or its pieces would be
  // too short.
  void add_unit(const Lengths& lengths, const Tile& tile, int64_t head_begin, int64_t head_end,
                bool whole = false) {
    const int64_t heads = head_end - head_begin, rows = tile.row_end - tile.row_begin;
    const KeyRange keys = tile.keys;
    const double key_ns = costs_.key_ns(lengths.phase, rows);
    const double ns = kCallNs + tile.mean_keys * static_cast<double>(heads) * key_ns;
    const size_t first = list_.works.size();
    // `middle` of the piece, ns from the unit's begin. Written in place: what is built and copied
    // waits for its own stores.
    const auto add_piece = [&](int64_t key_begin, int64_t key_end, double middle) {
      enter_range(position_ + middle);
      Work& work = list_.works.emplace_back();
      work.request = static_cast<int32_t>(lengths.index);
      work.kv_head_begin = static_cast<int32_t>(head_begin);
      work.kv_head_end = static_cast<int32_t>(head_end);
      work.row_begin = static_cast<int32_t>(tile.row_begin);
      work.row_end = static_cast<int32_t>(tile.row_end);
      work.key_begin = static_cast<int32_t>(key_begin);
      work.key_end = static_cast<int32_t>(key_end);
      work.phase = lengths.phase;
      work.partial = -1;
    };
    const double end = line_ + ns;
    int64_t begin = keys.begin;
    double done = 0;  // ns
    if (end > next_cut_ && !whole &&
        (lengths.phase == Phase::kDecode || ns > kWholeUnit * target_)) {
      const double shortest = min_piece_keys(heads, rows, key_ns);
      const auto num_keys = static_cast<double>(keys.size());
      for (double at = next_cut_; at < end; at += target_) {
        const double share = (at - line_) / ns;
        const int64_t key =
            round_up(keys.begin + static_cast<int64_t>(share * num_keys), costs_.key_align);
        if (static_cast<double>(key - begin) < shortest) continue;
        if (static_cast<double>(keys.end - key) < shortest) break;
        const double piece_ns = ns * static_cast<double>(key - begin) / num_keys;
        add_piece(begin, key, done + piece_ns / 2);
        done += piece_ns;
        begin = key;
      }
    }
    add_piece(begin, keys.end, (done + ns) / 2);
    if (list_.works.size() - first > 1) add_merge(first);
    if (keys.size() > kMaxChainKeys) note_folds(first);
    position_ += ns;
    line_ = end;
    if (line_ >= next_cut_) next_cut_ = (std::floor(line_ / target_) + 1) * target_;
  }

  // The next work lies in the range that `at` is in.
  void enter_range(double at) {
    if (at < range_end_) return;
    range_end_ = (std::floor(at / range_ns_) + 1) * range_ns_;
    list_.ranges.push_back(static_cast<int32_t>(list_.works.size()));
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
  const double range_ns_;
  WorkList& list_;
  double position_ = 0;   // where the next unit begins, ns from the first one's begin
  double range_end_ = 0;  // of the last range
  double target_ = 0, line_ = 0, next_cut_ = 0;  // line_: position_, from begin_line()
};

// scratch_bytes: what the phases of this step need of a thread.
void lay_out_workspace(const AttentionSpec& spec, const Machine& machine, size_t scratch_bytes,
                       WorkList& list) {
  auto align = [](int64_t bytes) { return round_up(bytes, int64_t{64}); };
  const int64_t row_bytes = align(spec.dim_vo() * int64_t{sizeof(float)});
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

  double total = 0;
  size_t scratch_bytes = 0;
  list.lengths.resize(static_cast<size_t>(batch.num_requests()));
  for (int64_t b = 0; b < batch.num_requests(); b++) {
    Lengths& lengths = list.lengths[static_cast<size_t>(b)];
    find_lengths(costs, batch, b, machine.max_decode_rows, lengths);
    total += lengths.ns;
    if (lengths.rows > 0)
      scratch_bytes =
          std::max(scratch_bytes, lengths.phase == Phase::kDecode ? machine.decode_scratch_bytes
                                                                  : machine.prefill_scratch_bytes);
  }
  const double range_ns = std::max(total, 1.0) /
                          static_cast<double>(choose_num_ranges(costs, total, machine.num_threads));

  Planner planner(costs, range_ns, list);
  planner.begin_line(range_ns);
  double thread_ns = total / machine.num_threads;
  for (const Lengths& lengths : list.lengths) {
    if (spec.batch_invariant) {  // as if alone on the nominal machine
      planner.begin_line(
          lengths.ns / static_cast<double>(choose_num_ranges(costs, lengths.ns, kNominalThreads)));
      thread_ns = lengths.ns / kNominalThreads;
    }
    planner.add_units(lengths, thread_ns);
  }
  list.ranges.push_back(static_cast<int32_t>(list.works.size()));
  lay_out_workspace(spec, machine, scratch_bytes, list);
}

}  // namespace rapt::cpu
