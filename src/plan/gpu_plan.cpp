#include "plan/gpu_plan.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "core/check.hpp"
#include "problem/visibility.hpp"

namespace rapt::gpu {
namespace {

// Starting a block, loading its queries and writing its results: while another multiplies on the
// SM, or while none does. Both, and the small tiles' rate, so that the tiles of head dim 256 come
// out as they did on an H200 (docs/notes/2026-12-01-medium-tile.md).
constexpr double kBlockNs = 3000, kLoneBlockNs = 4300;
// Of the flops that a tile of 128 rows does.
constexpr double kSmallTileRate = 0.95;
// A piece takes at least this many times as long as its block's start and partial results do.
constexpr double kMinPieceToOverhead = 1;
// A tile stays whole up to so many equal shares: its pieces would be merged.
constexpr double kWholeTile = 1.25;
// So that at most 1 + 1 / kWholeTile = 1.8 pieces are cut for each slot. Since times are sampled,
// it may come out as more, of which those beyond this are not cut.
constexpr int64_t kMaxPiecesPerSlot = 2;
// A second launch: it begins when the first has drained.
constexpr double kLaunchNs = 5000;
// Blocks of at most so many keys spend much of their time on loading queries and storing results,
// while the SM's units rest unless others multiply. Where the shortest suffice to even out the end,
// the others keep the order of the batch, in which long and short ones mix.
constexpr uint32_t kShortKeys = 2048;
// The GPU that batch_invariant cuts for.
constexpr int32_t kNominalSlots = 128;
constexpr double kNominalGigahertz = 1.5;
// Tiles of a request whose times stand for all of its: times change along straight lines, but for a
// few bends.
constexpr uint32_t kSampledTiles = 4;
// Lengths that are told apart when blocks are ordered, 2^kLengthBits at most.
constexpr int kLengthBits = 11;

// A spec in the units of the cost model.
class Costs {
 public:
  Costs(const AttentionSpec& spec, const Machine& machine) : machine_(machine) {
    const double dims = spec.head_dim_qk + spec.dim_vo();
    const double read_ns =
        dims * static_cast<double>(size_of(spec.dtype)) / machine.read_bytes_per_ns;
    // Whatever rows a work has, its block multiplies a tile's.
    const double multiply_ns = 2 * dims * machine.tile_rows / machine.flops_per_ns;
    block_keys_ns_ = std::max(read_ns, multiply_ns) * counted_keys();
    partial_row_ns_ = 2.0 * spec.dim_vo() * sizeof(float) / machine.read_bytes_per_ns;
  }

  // Of a block against so many keys.
  double block_ns(int32_t keys) const {
    const auto unit = static_cast<uint32_t>(counted_keys());
    const uint32_t blocks = (static_cast<uint32_t>(keys) + unit - 1) / unit;
    return machine_.start_ns + block_keys_ns_ * blocks;
  }
  // What a block more costs: its start, and its partial results.
  double cut_ns(int64_t rows) const {
    return machine_.start_ns + partial_row_ns_ * static_cast<double>(rows);
  }

 private:
  // What a block's last keys are rounded up to.
  int32_t counted_keys() const {
    return machine_.halves_blocks ? machine_.tile_keys / 2 : machine_.tile_keys;
  }

  const Machine& machine_;
  double block_keys_ns_;   // counted_keys(): read, and multiplied by a tile's rows
  double partial_row_ns_;  // a row's partial result, written and read
};

class Planner {
 public:
  Planner(const AttentionSpec& spec, const Machine& machine, WorkList& list)
      : spec_(spec),
        group_(static_cast<uint32_t>(spec.group())),
        band_(spec.visible_band()),
        machine_(machine),
        costs_(spec, machine),
        gpu_ns_a_head_(static_cast<double>(spec.num_kv_heads) / machine.num_slots),
        list_(list) {}

  // Of the GPU, for a request that sees so many keys.
  double gpu_ns(int32_t b, int32_t keys) const {
    return (has_one_tile(b) && machine_.max_request_tiles > 0 ? costs_.block_ns(keys)
                                                              : head_ns(b)) *
           gpu_ns_a_head_;
  }
  // What an equal share of the nominal GPU takes for the request alone.
  double nominal_share(int32_t b) const { return head_ns(b) * spec_.num_kv_heads / kNominalSlots; }

  // Adds a request's pieces, cut so that none takes much longer than `share`, into no more than are
  // left.
  void add_request(int32_t b, double share, int64_t& pieces_left) {
    if (costs_.block_ns(list_.requests[b].kv_len) > kWholeTile * share)
      cut_request(b, share, pieces_left);
    else if (has_one_tile(b))
      list_.pieces.push_back(tile(b, 0));
    else
      add_whole_tiles(b);
  }

 private:
  bool has_one_tile(int32_t b) const {
    const auto rows = static_cast<uint32_t>(list_.requests[b].query_len) * group_;
    return rows - 1 < static_cast<uint32_t>(machine_.tile_rows);
  }

  // Of a KV head of a request, all slots together; infinite where another tile is to take it. This
  // and what follows is kept out of the loops over requests, most of which have one tile.
  [[gnu::noinline]] double head_ns(int32_t b) const {
    const uint32_t tiles = num_tiles(b);
    if (tiles > static_cast<uint32_t>(machine_.max_request_tiles))
      return std::numeric_limits<double>::infinity();
    double ns = 0;
    if (tiles <= kSampledTiles) {
      for (uint32_t i = 0; i < tiles; i++) ns += tile_ns(tile(b, i));
      return ns;
    }
    for (uint32_t i = 0; i < kSampledTiles; i++)  // the middle of its stretch
      ns += tile_ns(
          tile(b, static_cast<uint32_t>(uint64_t{2 * i + 1} * tiles / (2 * kSampledTiles))));
    return ns * static_cast<double>(tiles) / kSampledTiles;
  }

  // tile(b, i) of each i. Where each begins follows from the one before: nothing is divided.
  [[gnu::noinline]] void add_whole_tiles(int32_t b) {
    const device::AttentionRequest request = list_.requests[b];
    const Window band = band_;  // not read again behind each store
    const size_t before = list_.pieces.size();
    list_.pieces.resize(before + num_tiles(b));
    Piece* next = list_.pieces.data() + before;
    const auto group = static_cast<int32_t>(group_);
    const int32_t rows = request.query_len * group, tile_rows = machine_.tile_rows;
    const int32_t tokens = tile_rows / group, rows_over = tile_rows % group;
    int32_t token = 0, row_of_token = 0;
    for (int32_t row = 0; row < rows; row += tile_rows) {
      const int32_t first = token;
      token += tokens, row_of_token += rows_over;
      if (row_of_token >= group) token++, row_of_token -= group;
      const int32_t last = std::min(token + (row_of_token > 0), request.query_len);
      const KeyRange keys = visible_keys(band, first, last, request.query_len, request.kv_len);
      *next++ = {.request = b,
                 .row_begin = row,
                 .row_end = std::min(row + tile_rows, rows),
                 .key_begin = static_cast<int>(keys.begin),
                 .key_end = static_cast<int>(keys.end),
                 .partial = -1};
    }
  }

  [[gnu::noinline]] void cut_request(int32_t b, double share, int64_t& pieces_left) {
    for (uint32_t i = 0, tiles = num_tiles(b); i < tiles; i++) {
      const Piece whole = tile(b, i);
      const double ns = tile_ns(whole);
      const int64_t parts =
          ns <= kWholeTile * share ? 1 : std::min(parts_of(whole, ns, share), pieces_left);
      if (parts > 1) {
        add_pieces(whole, static_cast<int32_t>(parts));
        pieces_left -= parts;
      } else {
        list_.pieces.push_back(whole);
      }
    }
  }

  uint32_t num_tiles(int32_t b) const {
    const auto rows = static_cast<uint32_t>(list_.requests[b].query_len) * group_;
    const auto tile_rows = static_cast<uint32_t>(machine_.tile_rows);
    return rows <= tile_rows ? rows > 0 : (rows + tile_rows - 1) / tile_rows;
  }

  // Tile i of a request, against all keys that it sees.
  Piece tile(int32_t b, uint32_t i) const {
    const device::AttentionRequest& request = list_.requests[b];
    const auto tile_rows = static_cast<uint32_t>(machine_.tile_rows);
    const auto query_len = static_cast<uint32_t>(request.query_len);
    const uint32_t row = i * tile_rows, end = std::min(query_len * group_, row + tile_rows);
    // Divisions take long, and a request of one tile has none.
    const uint32_t first = row == 0 ? 0 : row / group_;
    const uint32_t last = end == query_len * group_ ? query_len : (end - 1) / group_ + 1;
    const KeyRange keys = visible_keys(band_, first, last, query_len, request.kv_len);
    return {.request = b,
            .row_begin = static_cast<int>(row),
            .row_end = static_cast<int>(end),
            .key_begin = static_cast<int>(keys.begin),
            .key_end = static_cast<int>(keys.end),
            .partial = -1};
  }
  double tile_ns(const Piece& tile) const { return costs_.block_ns(tile.key_end - tile.key_begin); }

  int64_t parts_of(const Piece& tile, double ns, double share) const {
    const double cut_ns = costs_.cut_ns(tile.row_end - tile.row_begin);
    const double parts = ns / std::max(share, cut_ns * (1 + kMinPieceToOverhead));
    const auto whole = static_cast<int64_t>(parts);
    const int64_t blocks = num_blocks(tile.key_end - tile.key_begin);
    return std::clamp<int64_t>(whole + (whole < parts), 1, std::max<int64_t>(blocks, 1));
  }
  // That so many keys fill.
  int32_t num_blocks(int32_t keys) const {
    const auto unit = static_cast<uint32_t>(machine_.tile_keys);
    return static_cast<int32_t>((static_cast<uint32_t>(keys) + unit - 1) / unit);
  }

  // Cuts fall on absolute multiples of tile_keys, as kernels take keys: piece i ends with block
  // blocks * (i + 1) / num_pieces of the tile's, found by adding up remainders.
  void add_pieces(const Piece& tile, int32_t num_pieces) {
    const int32_t unit = machine_.tile_keys, first = tile.key_begin / unit;
    const int32_t blocks = num_blocks(tile.key_end) - first;
    const int32_t quotient = blocks / num_pieces, remainder = blocks % num_pieces;
    const int64_t rows = tile.row_end - tile.row_begin;
    add_merges(tile, num_pieces);
    int64_t partial = list_.num_partial_rows;
    int32_t begin = tile.key_begin, block = first, left = 0;
    for (int32_t i = 1; i <= num_pieces; i++, partial += rows) {
      left += remainder - num_pieces;
      block += quotient + (left >= 0);
      left += left < 0 ? num_pieces : 0;
      const int32_t end = i < num_pieces ? block * unit : tile.key_end;
      list_.pieces.push_back({.request = tile.request,
                              .row_begin = tile.row_begin,
                              .row_end = tile.row_end,
                              .key_begin = begin,
                              .key_end = end,
                              .partial = partial});
      begin = end;
    }
    list_.num_partial_rows = partial;
  }

  void add_merges(const Piece& tile, int32_t num_parts) {
    const int rows = tile.row_end - tile.row_begin;
    list_.num_merged_rows += rows;
    for (int row = 0; row < rows; row += device::kMergeRows)
      list_.merges.push_back(
          {.partial = list_.num_partial_rows + row,
           .part_rows = rows,
           .num_parts = num_parts,
           .query_start = list_.requests[tile.request].query_start,
           .row_begin = tile.row_begin + row,
           .row_end = std::min(tile.row_begin + row + device::kMergeRows, tile.row_end)});
  }

  const AttentionSpec& spec_;
  const uint32_t group_;
  const Window band_;
  const Machine& machine_;
  const Costs costs_;
  const double gpu_ns_a_head_;  // of the GPU, for a nanosecond of one KV head
  WorkList& list_;
};

void make_requests(const Batch& batch, const AttentionSpec& spec,
                   std::optional<int64_t> page_table_width,
                   std::vector<device::AttentionRequest>& requests) {
  requests.resize(batch.kv_len.size());
  const int64_t group = spec.group();
  int64_t mask_bit = 0, first_page = 0;
  for (int64_t b = 0; b < batch.num_requests(); b++) {
    const int64_t query_len = batch.query_len(b);
    check(query_len * group <= kMaxRows, "query_len[", b, "] is ", query_len, " with ", group,
          " query heads per KV head: their product may be at most ", kMaxRows);
    requests[b] = {.query_start = batch.query_start[b],
                   .query_len = static_cast<int>(query_len),
                   .kv_len = batch.kv_len[b],
                   .kv_start = spec.is_paged() ? 0 : batch.kv_start[b],
                   .first_page = first_page,
                   .mask_bit = mask_bit};
    mask_bit += query_len * batch.kv_len[b];
    if (spec.is_paged())
      first_page +=
          page_table_width ? *page_table_width : ceil_div(batch.kv_len[b], spec.page_size);
  }
}

bool alike(const device::AttentionRequest& a, const device::AttentionRequest& b) {
  return a.query_len == b.query_len && a.kv_len == b.kv_len;
}

using PerTile = std::array<double, kMaxTiles>;

// Puts each request on a tile; gives the time of the GPU for each tile's requests.
PerTile choose_tiles(const AttentionSpec& spec, std::span<const std::optional<Planner>> planners,
                     WorkList& list) {
  // All requests by one tile, and each by its best.
  PerTile alone{}, best{}, request_ns{};
  const Window band = spec.visible_band();
  size_t least = 0;
  list.tile_of.resize(list.requests.size());
  for (size_t b = 0; b < list.requests.size(); b++) {
    const device::AttentionRequest& request = list.requests[b];
    if (b > 0 && alike(request, list.requests[b - 1])) {
      for (size_t i = 0; i < planners.size(); i++) alone[i] += request_ns[i];
    } else {
      const KeyRange keys =
          visible_keys(band, 0, request.query_len, request.query_len, request.kv_len);
      double least_ns = std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < planners.size(); i++) {
        const double ns =
            planners[i]->gpu_ns(static_cast<int32_t>(b), static_cast<int32_t>(keys.size()));
        alone[i] += ns;
        request_ns[i] = ns;
        if (ns < least_ns) least = i, least_ns = ns;
      }
    }
    list.tile_of[b] = static_cast<int32_t>(least);
    best[least] += request_ns[least];
  }
  if (spec.batch_invariant) return best;
  double mixed = -kLaunchNs;
  for (const double tile_ns : best)
    if (tile_ns > 0) mixed += tile_ns + kLaunchNs;
  least = static_cast<size_t>(
      std::min_element(alone.begin(), alone.begin() + std::ssize(planners)) - alone.begin());
  if (mixed < alone[least]) return best;
  std::fill(list.tile_of.begin(), list.tile_of.end(), static_cast<int32_t>(least));
  best = {};
  best[least] = alone[least];
  return best;
}

// How many classes of lengths, from the longest on, keep the batch's order: those that leave a
// quarter of the blocks or more, if these keep each slot busy for half of what the longest takes.
template <typename ClassOf>
size_t mixed_classes(const WorkList& list, const Piece* pieces, int32_t count,
                     const ClassOf& class_of, uint32_t longest, int32_t num_slots) {
  size_t num_mixed = 0;
  for (int32_t left = count; num_mixed < list.next_of.size(); num_mixed++) {
    left -= list.next_of[num_mixed];
    if (left < count / 4) break;
  }
  int64_t ordered_keys = 0;
  for (int32_t n = 0; n < count; n++)
    if (class_of(pieces[n]) >= num_mixed) ordered_keys += pieces[n].key_end - pieces[n].key_begin;
  return 2 * ordered_keys * list.num_kv_heads >= int64_t{longest} * num_slots ? num_mixed : 0;
}

}  // namespace

Machine machine_of(const DeviceInfo& device, int32_t blocks_per_sm, int32_t tile_rows,
                   int32_t tile_keys, bool halves_blocks) {
  const double slots = std::max(1, device.num_sms * blocks_per_sm);
  // Dense 16-bit tensor cores of an SM by mma.sync: three quarters of 2048 flops a cycle, as the
  // kernel does on an H200 (docs/notes/2026-11-30-flash-attention-backend.md), and half that on the
  // smaller parts of a generation.
  const bool large = device.compute_capability % 10 == 0 && device.compute_capability < 120;
  return {.num_slots = static_cast<int32_t>(slots),
          .read_bytes_per_ns = device.memory_bandwidth * 1e-9 / slots,
          .flops_per_ns = (tile_rows < 128 ? kSmallTileRate : 1) * (large ? 1536 : 768) *
                          kNominalGigahertz / blocks_per_sm,
          .tile_rows = tile_rows,
          .tile_keys = tile_keys,
          .halves_blocks = halves_blocks,
          .start_ns = blocks_per_sm > 1 ? kBlockNs : kLoneBlockNs};
}

int64_t max_pieces(const Machine& tile, const AttentionSpec& spec) {
  const int64_t slots = spec.batch_invariant ? kNominalSlots : tile.num_slots;
  return ceil_div(kMaxPiecesPerSlot * slots, spec.num_kv_heads);
}

void plan_work(const Batch& batch, const AttentionSpec& spec, std::span<const Machine> tiles,
               std::optional<int64_t> page_table_width, WorkList& list) {
  list.pieces.clear();
  list.num_works.clear();
  list.num_kv_heads = spec.num_kv_heads;
  list.merges.clear();
  list.num_partial_rows = list.num_merged_rows = 0;
  make_requests(batch, spec, page_table_width, list.requests);

  std::array<std::optional<Planner>, kMaxTiles> planners;
  for (size_t i = 0; i < tiles.size(); i++) planners[i].emplace(spec, tiles[i], list);
  const PerTile totals = choose_tiles(spec, {planners.data(), tiles.size()}, list);
  for (size_t i = 0; i < tiles.size(); i++) {
    list.num_works.push_back(0);
    if (totals[i] == 0) continue;  // no request is on this tile, or none has rows
    Planner& planner = *planners[i];
    const size_t first = list.pieces.size();
    int64_t pieces_left = max_pieces(tiles[i], spec);
    for (int32_t b = 0; b < static_cast<int32_t>(list.requests.size()); b++) {
      if (list.tile_of[b] != static_cast<int32_t>(i)) continue;
      if (spec.batch_invariant) pieces_left = max_pieces(tiles[i], spec);
      planner.add_request(b, spec.batch_invariant ? planner.nominal_share(b) : totals[i],
                          pieces_left);
    }
    list.num_works[i] = static_cast<int32_t>(list.pieces.size() - first);
  }
  // Until here those of one.
  list.num_partial_rows *= spec.num_kv_heads;
  list.num_merged_rows *= spec.num_kv_heads;
}

// What falls or rises in length, as alike requests or the tiles of a prompt do, is taken forwards
// or backwards; the rest is sorted by counting those of each class of lengths. Classes whose order
// is that of the batch count as one.
void write_works(WorkList& list, std::span<const Machine> tiles, size_t i,
                 device::AttentionWork* to) {
  const int32_t count = list.num_works[i];
  if (count == 0) return;
  const Piece* pieces = list.pieces.data();
  for (size_t before = 0; before < i; before++) pieces += list.num_works[before];
  const auto length_of = [](const Piece& piece) {
    return static_cast<uint32_t>(piece.key_end - piece.key_begin);
  };
  const auto write = [&](int32_t place, const Piece& piece) {
    to[place] = {.of_request = list.requests[piece.request],
                 .request = piece.request,
                 .row_begin = piece.row_begin,
                 .row_end = piece.row_end,
                 .key_begin = piece.key_begin,
                 .key_end = piece.key_end,
                 .partial = piece.partial};
  };
  const auto longer = [&](const Piece& a, const Piece& b) { return length_of(a) > length_of(b); };
  const auto shorter = [&](const Piece& a, const Piece& b) { return length_of(a) < length_of(b); };
  if (std::is_sorted(pieces, pieces + count, longer)) {
    for (int32_t n = 0; n < count; n++) write(n, pieces[n]);
    return;
  }
  if (std::is_sorted(pieces, pieces + count, shorter)) {
    for (int32_t n = 0; n < count; n++) write(n, pieces[count - 1 - n]);
    return;
  }
  uint32_t longest = 0;
  for (int32_t n = 0; n < count; n++) longest = std::max(longest, length_of(pieces[n]));
  const auto tile_keys = static_cast<uint32_t>(tiles[i].tile_keys);
  const int class_bits = std::max(static_cast<int>(std::bit_width(longest)) - kLengthBits,
                                  static_cast<int>(std::bit_width(tile_keys)) - 1);
  const auto class_of = [&](const Piece& piece) {
    return (longest - length_of(piece)) >> class_bits;
  };
  list.next_of.assign((longest >> class_bits) + 1, 0);
  for (int32_t n = 0; n < count; n++) list.next_of[class_of(pieces[n])]++;
  const size_t num_mixed = longest <= kShortKeys ? mixed_classes(list, pieces, count, class_of,
                                                                 longest, tiles[i].num_slots)
                                                 : 0;
  const size_t first_class = num_mixed > 0 ? num_mixed - 1 : 0;
  for (size_t n = 0; n < first_class; n++)
    list.next_of[first_class] += std::exchange(list.next_of[n], 0);
  int32_t next = 0;
  for (int32_t& of_class : list.next_of) next += std::exchange(of_class, next);
  list.order.resize(static_cast<size_t>(count));
  for (int32_t n = 0; n < count; n++)
    list.order[list.next_of[std::max<size_t>(class_of(pieces[n]), first_class)]++] = n;
  for (int32_t n = 0; n < count; n++) write(n, pieces[list.order[n]]);
}

}  // namespace rapt::gpu
