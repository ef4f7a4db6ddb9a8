// From a batch's lengths to a GPU's list of thread blocks: a pure host function.
//
// A tile is tile_rows rows (query tokens times the query heads of a KV head) of a request against
// the keys that they see. Costs are in nanoseconds of one slot, a thread block's share of an SM:
// bytes of K and V over its bandwidth, or flops over its rate, whichever takes longer. A tile that
// takes longer than an equal share of the step has its keys cut, unless the partial results would
// cost more than the balance is worth. The longest come first, since a GPU starts blocks in order:
// what is left at the end is short. (Many short ones mix; see write_works().) All KV heads do the
// same, a block each.
//
// A kernel may come with several tiles, few rows for decoding and many for prefill, each launched
// on its own: a request goes to the one that takes less of the GPU's time for it, unless all
// requests by one launch are done sooner.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "kernels/abi/attention.hpp"
#include "kernels/abi/merge.hpp"
#include "rapt/batch.hpp"
#include "rapt/device.hpp"
#include "rapt/spec.hpp"

namespace rapt::gpu {

// What the planner knows of a GPU and one tile of its kernel. Rates are one slot's while all are
// busy.
struct Machine {
  int32_t num_slots = 1;  // thread blocks that run at once
  double read_bytes_per_ns = 20;
  double flops_per_ns = 1500;
  int32_t tile_rows = 128, tile_keys = 32;  // of the kernel
  // A request of more goes to another of the tiles, of which one at least takes every request.
  int32_t max_request_tiles = std::numeric_limits<int32_t>::max();
  bool halves_blocks = false;  // a last block of at most half the keys takes half the time
  double start_ns = 3000;      // of a block, and its end; above 0
};

// Nominal rates; being off by a factor that is the same for all work changes nothing.
// blocks_per_sm: how many of the kernel's blocks an SM holds.
Machine machine_of(const DeviceInfo& device, int32_t blocks_per_sm, int32_t tile_rows,
                   int32_t tile_keys, bool halves_blocks = false);

// A work before it has its place among the others.
struct Piece {
  int32_t request;
  int32_t row_begin, row_end;
  int32_t key_begin, key_end;
  int64_t partial;
};

struct WorkList {
  std::vector<device::AttentionRequest> requests;  // one for each of the batch
  std::vector<Piece> pieces;              // those of the first tile, then those of the next
  std::vector<int32_t> num_works;         // of each tile: as many as pieces
  std::vector<device::MergeWork> merges;  // tiles whose keys were cut
  int64_t num_partial_rows = 0, num_merged_rows = 0;
  int32_t num_kv_heads = 1;  // blocks of a work

  // The planner's own, kept for its capacity.
  std::vector<int32_t> next_of;  // each class of lengths: the place of its next work
  std::vector<int32_t> order;    // of a tile's pieces
  std::vector<int32_t> tile_of;  // each request
};

constexpr size_t kMaxTiles = 4;
// Of a request: kernels number rows in 32 bits, and round up to the end of a tile.
constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max() - 0xffff;

// The pieces that a tile's works have at most, whose keys are cut: of a request with
// spec.batch_invariant, else of the batch.
int64_t max_pieces(const Machine& tile, const AttentionSpec& spec);

// Fills `list`, reusing its memory. `batch` is valid for `spec`; page_table_width is the entries of
// a request's row of page ids; without it the ids that lengths ask for follow each other, request
// after request. With spec.batch_invariant each request is cut as if it were alone on a nominal
// GPU, and its tile depends on it alone. `tiles` has 1 to kMaxTiles entries. Throws Error where
// rows, masks or page ids exceed what a kernel counts.
void plan_work(const Batch& batch, const AttentionSpec& spec, std::span<const Machine> tiles,
               std::optional<int64_t> page_table_width, WorkList& list);

// Writes the works of tile number i of `tiles`, the longest first, to where a kernel gets them:
// num_works[i]. What is shorter by less than a block of keys, or by a thousandth of the longest, is
// not told apart. Of many short ones only the shortest quarter or more is ordered, and comes last.
void write_works(WorkList& list, std::span<const Machine> tiles, size_t i,
                 device::AttentionWork* to);

}  // namespace rapt::gpu
