#include "plan/gpu_plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/check.hpp"
#include "problem/visibility.hpp"

namespace rapt::gpu {
namespace {

// Starting a block, loading its queries and writing its results.
constexpr double kBlockNs = 3000;
// A piece takes at least this many times as long as its block's start and partial results do.
constexpr double kMinPieceToOverhead = 1;
// A tile stays whole up to so many equal shares: its pieces would be merged.
constexpr double kWholeTile = 1.25;
// A second launch: it begins when the first has drained.
constexpr double kLaunchNs = 5000;
// The GPU that batch_invariant cuts for.
constexpr int32_t kNominalSlots = 128;
constexpr double kNominalGigahertz = 1.5;
// Kernels number rows and keys in 32 bits, and round up to the end of a tile.
constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max() - 0xffff;

// A spec in the units of the cost model.
class Costs {
 public:
  Costs(const AttentionSpec& spec, const Machine& machine) : machine_(machine) {
    const double dims = spec.head_dim_qk + spec.dim_vo();
    read_ns_ = dims * static_cast<double>(size_of(spec.dtype)) / machine.read_bytes_per_ns;
    // Whatever rows a work has, its block multiplies a tile's.
    multiply_ns_ = 2 * dims * machine.tile_rows / machine.flops_per_ns;
    partial_row_ns_ = 2.0 * spec.dim_vo() * sizeof(float) / machine.read_bytes_per_ns;
  }

  // Of a block against so many keys.
  double block_ns(int64_t keys) const {
    const int64_t whole = round_up(keys, machine_.tile_keys);
    return kBlockNs + std::max(read_ns_, multiply_ns_) * static_cast<double>(whole);
  }
  // What a block more costs: its start, and its partial results.
  double cut_ns(int64_t rows) const {
    return kBlockNs + partial_row_ns_ * static_cast<double>(rows);
  }

 private:
  const Machine& machine_;
  double read_ns_;         // K and V of a key
  double multiply_ns_;     // a tile's rows by a key
  double partial_row_ns_;  // a row's partial result, written and read
};

class Planner {
 public:
  Planner(const AttentionSpec& spec, const Machine& machine, WorkList& list)
      : spec_(spec),
        band_(spec.visible_band()),
        machine_(machine),
        costs_(spec, machine),
        list_(list) {}

  // body(tile with its keys, its time) for each tile of one KV head of a request.
  template <typename Body>
  void for_each_tile(int32_t b, const Body& body) const {
    const device::AttentionRequest& request = list_.requests[b];
    const int64_t rows = int64_t{request.query_len} * spec_.group();
    for (int64_t row = 0; row < rows; row += machine_.tile_rows) {
      const int64_t end = std::min<int64_t>(rows, row + machine_.tile_rows);
      const KeyRange keys = visible_keys(band_, row / spec_.group(), (end - 1) / spec_.group() + 1,
                                         request.query_len, request.kv_len);
      device::AttentionWork tile{};
      tile.request = b;
      tile.row_begin = static_cast<int>(row), tile.row_end = static_cast<int>(end);
      tile.key_begin = static_cast<int>(keys.begin), tile.key_end = static_cast<int>(keys.end);
      tile.partial = -1;
      body(tile, costs_.block_ns(keys.size()));
    }
  }

  double request_ns(int32_t b) const {
    double ns = 0;
    for_each_tile(b, [&](const device::AttentionWork&, double tile_ns) { ns += tile_ns; });
    return ns * spec_.num_kv_heads;
  }

  // Adds a request's blocks, cut so that none is much longer than `share`.
  void add_request(int32_t b, double share) {
    for_each_tile(b, [&](device::AttentionWork tile, double ns) {
      const int64_t parts = parts_of(tile, ns, share);
      for (tile.kv_head = 0; tile.kv_head < spec_.num_kv_heads; tile.kv_head++)
        add_tile(tile, parts);
    });
  }

 private:
  int64_t parts_of(const device::AttentionWork& tile, double ns, double share) const {
    if (ns <= kWholeTile * share) return 1;
    const int64_t rows = tile.row_end - tile.row_begin;
    const double shortest = std::max(share, costs_.cut_ns(rows) * (1 + kMinPieceToOverhead));
    const auto blocks = ceil_div(tile.key_end - tile.key_begin, machine_.tile_keys);
    return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(ns / shortest)), 1,
                               std::max<int64_t>(blocks, 1));
  }

  // Cuts fall on absolute multiples of tile_keys, as kernels take keys.
  void add_tile(const device::AttentionWork& tile, int64_t parts) {
    const int64_t unit = machine_.tile_keys, first = tile.key_begin / unit;
    const int64_t blocks = ceil_div(tile.key_end, unit) - first;
    const int64_t rows = tile.row_end - tile.row_begin;
    if (parts > 1) add_merge_rows(tile, parts);
    for (int64_t part = 0; part < parts; part++) {
      device::AttentionWork piece = tile;
      if (part > 0) piece.key_begin = static_cast<int>((first + blocks * part / parts) * unit);
      if (part + 1 < parts)
        piece.key_end = static_cast<int>((first + blocks * (part + 1) / parts) * unit);
      if (parts > 1) piece.partial = list_.num_partial_rows + part * rows;
      list_.order.push_back({costs_.block_ns(piece.key_end - piece.key_begin),
                             static_cast<int32_t>(list_.unordered.size())});
      list_.unordered.push_back(piece);
    }
    if (parts > 1) list_.num_partial_rows += parts * rows;
  }

  void add_merge_rows(const device::AttentionWork& tile, int64_t parts) {
    const int64_t rows = tile.row_end - tile.row_begin;
    const auto group = static_cast<int>(spec_.group());
    for (int row = tile.row_begin; row < tile.row_end; row++)
      list_.merge_rows.push_back({.partial = list_.num_partial_rows + row - tile.row_begin,
                                  .part_stride = rows,
                                  .num_parts = static_cast<int>(parts),
                                  .token = list_.requests[tile.request].query_start + row / group,
                                  .query_head = tile.kv_head * group + row % group});
  }

  const AttentionSpec& spec_;
  const Window band_;
  const Machine& machine_;
  const Costs costs_;
  WorkList& list_;
};

void make_requests(const Batch& batch, const AttentionSpec& spec, int64_t page_table_width,
                   std::vector<device::AttentionRequest>& requests) {
  requests.clear();
  int64_t mask_bit = 0;
  for (int64_t b = 0; b < batch.num_requests(); b++) {
    const int64_t query_len = batch.query_len(b);
    check(query_len * spec.group() <= kMaxRows, "query_len[", b, "] is ", query_len, " with ",
          spec.group(), " query heads per KV head: their product may be at most ", kMaxRows);
    requests.push_back({.query_start = batch.query_start[b],
                        .query_len = static_cast<int>(query_len),
                        .kv_len = batch.kv_len[b],
                        .kv_start = spec.is_paged() ? 0 : batch.kv_start[b],
                        .first_page = b * page_table_width,
                        .mask_bit = mask_bit});
    mask_bit += query_len * batch.kv_len[b];
  }
}

using PerTile = std::array<double, kMaxTiles>;

// Puts each request on a tile; gives the time of the GPU for each tile's requests.
PerTile choose_tiles(const AttentionSpec& spec, std::span<const Machine> tiles, WorkList& list) {
  const size_t num_requests = list.requests.size();
  list.gpu_ns.clear();
  for (const Machine& tile : tiles) {
    const Planner planner(spec, tile, list);
    for (size_t b = 0; b < num_requests; b++)
      list.gpu_ns.push_back(planner.request_ns(static_cast<int32_t>(b)) / tile.num_slots);
  }
  // All requests by one tile, and each by its best.
  PerTile alone{}, best{};
  for (size_t b = 0; b < num_requests; b++) {
    size_t least = 0;
    for (size_t i = 0; i < tiles.size(); i++) {
      const double ns = list.gpu_ns[i * num_requests + b];
      alone[i] += ns;
      if (ns < list.gpu_ns[least * num_requests + b]) least = i;
    }
    list.tile_of.push_back(static_cast<int32_t>(least));
    best[least] += list.gpu_ns[least * num_requests + b];
  }
  if (spec.batch_invariant) return best;
  double mixed = -kLaunchNs;
  for (const double tile_ns : best)
    if (tile_ns > 0) mixed += tile_ns + kLaunchNs;
  const auto least = static_cast<size_t>(
      std::min_element(alone.begin(), alone.begin() + std::ssize(tiles)) - alone.begin());
  if (mixed < alone[least]) return best;
  std::fill(list.tile_of.begin(), list.tile_of.end(), static_cast<int32_t>(least));
  best = {};
  best[least] = alone[least];
  return best;
}

// Moves what was added since `first` behind the works, the longest first.
void sort_works(size_t first, WorkList& list) {
  std::sort(
      list.order.begin() + static_cast<std::ptrdiff_t>(first), list.order.end(),
      [](const auto& a, const auto& b) { return a.ns != b.ns ? a.ns > b.ns : a.work < b.work; });
  for (size_t i = first; i < list.order.size(); i++)
    list.works.push_back(list.unordered[list.order[i].work]);
}

}  // namespace

Machine machine_of(const DeviceInfo& device, int32_t blocks_per_sm, int32_t tile_rows,
                   int32_t tile_keys) {
  const double slots = std::max(1, device.num_sms * blocks_per_sm);
  // Dense 16-bit tensor cores of an SM by mma.sync: three quarters of 2048 flops a cycle, as the
  // kernel does on an H200 (docs/notes/2026-11-30-flash-attention-backend.md), and half that on the
  // smaller parts of a generation.
  const bool large = device.compute_capability % 10 == 0 && device.compute_capability < 120;
  return {.num_slots = static_cast<int32_t>(slots),
          .read_bytes_per_ns = device.memory_bandwidth * 1e-9 / slots,
          .flops_per_ns = (large ? 1536 : 768) * kNominalGigahertz / blocks_per_sm,
          .tile_rows = tile_rows,
          .tile_keys = tile_keys};
}

void plan_work(const Batch& batch, const AttentionSpec& spec, std::span<const Machine> tiles,
               int64_t page_table_width, WorkList& list) {
  list.order.clear();
  list.unordered.clear();
  list.works.clear();
  list.num_works.clear();
  list.tile_of.clear();
  list.merge_rows.clear();
  list.num_partial_rows = 0;
  make_requests(batch, spec, page_table_width, list.requests);

  const PerTile totals = choose_tiles(spec, tiles, list);
  for (size_t i = 0; i < tiles.size(); i++) {
    Planner planner(spec, tiles[i], list);
    const size_t first = list.works.size();
    for (int32_t b = 0; b < static_cast<int32_t>(list.requests.size()); b++)
      if (list.tile_of[b] == static_cast<int32_t>(i))
        planner.add_request(
            b, spec.batch_invariant ? planner.request_ns(b) / kNominalSlots : totals[i]);
    sort_works(first, list);
    list.num_works.push_back(static_cast<int32_t>(list.works.size() - first));
  }
}

}  // namespace rapt::gpu
