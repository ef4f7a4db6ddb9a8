#include "backends/flash_attention/kernel_choice.hpp"

#include <algorithm>
#include <span>

#include "core/check.hpp"

namespace rapt::flash_attention {
namespace {

using device::AttentionVariant;

constexpr int32_t kRegistersPerSm = 65536, kRegistersPerThread = 256;  // 255, in whole groups of 8
// Of an SM's shared memory beyond what one block may have, and of each block (CUDA C++ Programming
// Guide, "Shared Memory" of each compute capability).
constexpr int64_t kSharedBytesKept = 1024;

struct Tile {
  int rows, keys, step_keys, num_warps;
};

// The first row that has both head dims counts, its tiles in order of preference; ptxas spills for
// none of them (docs/notes/2026-11-30-generation-2.md). A warp keeps its rows of O, head_dim_vo *
// rows / (32 * warps) registers of a thread, and as many of S for step_keys.
struct TilesOf {
  int min_head_dim, max_head_dim;  // of both
  std::array<Tile, 2> tiles;
};
constexpr TilesOf kPrefillTiles[] = {
    {1, 64, {{{128, 64, 64, 4}, {128, 32, 32, 4}}}},
    {128, 128, {{{128, 64, 32, 4}, {128, 32, 32, 4}}}},
    {1, 128, {{{128, 32, 32, 4}, {64, 32, 32, 4}}}},
    {1, 256, {{{64, 32, 32, 4}, {64, 16, 16, 4}}}},
};
// One warp: a block waits for nobody, and an SM has many.
constexpr TilesOf kDecodeTiles[] = {
    {1, 128, {{{16, 32, 32, 1}, {16, 16, 16, 1}}}},
    {1, 256, {{{16, 16, 16, 1}, {16, 16, 16, 1}}}},
};
// For groups of more than 16, and a few query tokens of smaller ones: keys are read once for all.
constexpr TilesOf kSmallTiles[] = {
    {1, 256, {{{32, 32, 32, 2}, {32, 16, 16, 2}}}},
};
// More blocks than these hide no more of the waiting. Two of four warps share an SM's registers; a
// warp of its own is on each of an SM's four partitions.
constexpr int32_t kPrefillBlocks = 2, kDecodeBlocks = 4;

AttentionVariant variant_of(const AttentionSpec& spec, const Tile& tile) {
  return {.head_dim_qk = spec.head_dim_qk,
          .head_dim_vo = spec.dim_vo(),
          .group = spec.group(),
          .page_size = spec.page_size,
          .tile_rows = tile.rows,
          .tile_keys = tile.keys,
          .step_keys = tile.step_keys,
          .num_warps = tile.num_warps,
          // Else the scale is applied with the maximum, which a scale <= 0 would turn around.
          .scores_in_advance = spec.resolved_scale() <= 0 || spec.softcap > 0 || spec.alibi,
          .softcap = spec.softcap > 0,
          .alibi = spec.alibi,
          .custom_mask = spec.custom_mask,
          .sinks = spec.sinks};
}

int32_t blocks_per_sm(const AttentionVariant& variant, const DeviceInfo& device) {
  const int64_t shared = device.shared_memory_bytes_per_block + kSharedBytesKept;
  return static_cast<int32_t>(
      std::min<int64_t>(shared / (variant.shared_bytes() + kSharedBytesKept),
                        kRegistersPerSm / (kRegistersPerThread * variant.num_threads())));
}

// The first tile of which an SM holds enough blocks, or the most.
KernelChoice choose(const AttentionSpec& spec, const DeviceInfo& device,
                    std::span<const TilesOf> rows, int32_t enough) {
  const int32_t low = std::min(spec.head_dim_qk, spec.dim_vo());
  const int32_t high = std::max(spec.head_dim_qk, spec.dim_vo());
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const TilesOf& tiles) {
    return tiles.min_head_dim <= low && high <= tiles.max_head_dim;
  });
  if (row == rows.end()) fail(ErrorCode::kInternal, "no tile for head dim ", high);
  KernelChoice best{};
  for (const Tile& tile : row->tiles) {
    const AttentionVariant variant = variant_of(spec, tile);
    const int32_t blocks = blocks_per_sm(variant, device);
    if (std::min(blocks, enough) > std::min(best.blocks_per_sm, enough)) best = {variant, blocks};
  }
  if (best.blocks_per_sm == 0)
    fail(ErrorCode::kInternal, "head dims ", spec.head_dim_qk, " and ", spec.dim_vo(), " on ",
         device.name, ": no tile fits in ", device.shared_memory_bytes_per_block, " bytes");
  return best;
}

}  // namespace

std::array<KernelChoice, kNumTiles> choose_kernels(const AttentionSpec& spec,
                                                   const DeviceInfo& device) {
  return {choose(spec, device, kDecodeTiles, kDecodeBlocks),
          choose(spec, device, kSmallTiles, kDecodeBlocks / 2),
          choose(spec, device, kPrefillTiles, kPrefillBlocks)};
}

}  // namespace rapt::flash_attention
