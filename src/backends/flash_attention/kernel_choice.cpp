#include "backends/flash_attention/kernel_choice.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include "core/check.hpp"

namespace rapt::flash_attention {
namespace {

using device::AttentionVariant;

constexpr int32_t kRegistersPerSm = 65536, kRegistersPerThread = 256;  // 255, in whole groups of 8
// Of an SM's shared memory beyond what one block may have, and of each block (CUDA C++ Programming
// Guide, "Shared Memory" of each compute capability).
constexpr int64_t kSharedBytesKept = 1024;

// What a score is more than q . k, times the scale with the maximum.
enum ScoreTerms { kNoTerms, kScaledInAdvance, kSoftcapOrAlibi };

struct Tile {
  int rows, keys, num_warps, stages = 2;
  // With more, or for later devices, ptxas spills.
  ScoreTerms most_terms = kSoftcapOrAlibi;
  int32_t capability_below = std::numeric_limits<int32_t>::max();
};

// The first row that has both head dims counts, its tiles in order of preference; ptxas spills for
// none of them (docs/notes/2026-11-30-generation-2.md). A warp keeps its rows of O, head_dim_vo *
// rows / (32 * warps) registers of a thread, and as many of S for its keys.
//
// Longer blocks are faster, since scores, softmax and products of one wait for each other. Rows
// of 32 a warp read K and V from shared memory half as often as 16 do, where registers allow them.
struct TilesOf {
  int max_head_dim;  // of both
  std::span<const Tile> tiles;
};
constexpr Tile kPrefill64[] = {
    {128, 128, 4, 2, kNoTerms, 100}, {128, 96, 4}, {128, 64, 4}, {128, 32, 4}};
constexpr Tile kPrefill96[] = {{128, 64, 4}, {128, 32, 4}, {64, 32, 4}};
constexpr Tile kPrefill128[] = {{128, 64, 4, 2, kNoTerms, 100},
                                {128, 48, 4, 2, kScaledInAdvance, 120},
                                {128, 32, 4},
                                {64, 32, 4}};
constexpr Tile kPrefill256[] = {
    {128, 128, 8, 1, kScaledInAdvance}, {128, 64, 8}, {128, 64, 8, 1}, {64, 48, 4, 1}, {64, 32, 4}};
constexpr TilesOf kPrefillTiles[] = {
    {64, kPrefill64}, {96, kPrefill96}, {128, kPrefill128}, {256, kPrefill256}};
// One warp: a block waits for nobody, and an SM has many.
constexpr Tile kDecode128[] = {{16, 32, 1}, {16, 16, 1}}, kDecode256[] = {{16, 16, 1}};
constexpr TilesOf kDecodeTiles[] = {{128, kDecode128}, {256, kDecode256}};
// For groups of more than 16, and a few query tokens of smaller ones: keys are read once for all.
constexpr Tile kSmall256[] = {{32, 32, 2}, {32, 16, 2}};
constexpr TilesOf kSmallTiles[] = {{256, kSmall256}};
// For the tokens that a draft model proposed, ends of prompts, and short prompts with large heads,
// of which an SM then has two blocks: one loads while the other multiplies.
constexpr Tile kMedium64[] = {{64, 128, 4}, {64, 64, 4}}, kMedium128[] = {{64, 64, 4}, {64, 32, 4}},
               kMedium256[] = {{64, 64, 4, 1}, {64, 48, 4, 1}};
constexpr TilesOf kMediumTiles[] = {{64, kMedium64}, {128, kMedium128}, {256, kMedium256}};
// More warps on an SM than these hide no more of the waiting. Eight share its registers; one of its
// own is on each of its four partitions.
constexpr int32_t kPrefillWarps = 8, kDecodeWarps = 4;

AttentionVariant variant_of(const AttentionSpec& spec, const Tile& tile) {
  return {.head_dim_qk = spec.head_dim_qk,
          .head_dim_vo = spec.dim_vo(),
          .group = spec.group(),
          .page_size = spec.page_size,
          .tile_rows = tile.rows,
          .tile_keys = tile.keys,
          .stages = tile.stages,
          .num_warps = tile.num_warps,
          // Else the scale is applied with the maximum, which a scale <= 0 would turn around.
          .scores_in_advance = spec.resolved_scale() <= 0 || spec.softcap > 0 || spec.alibi,
          .softcap = spec.softcap > 0,
          .alibi = spec.alibi,
          .custom_mask = spec.custom_mask,
          .sinks = spec.sinks};
}

ScoreTerms terms_of(const AttentionVariant& variant) {
  if (variant.softcap || variant.alibi) return kSoftcapOrAlibi;
  return variant.scores_in_advance ? kScaledInAdvance : kNoTerms;
}

int32_t blocks_per_sm(const AttentionVariant& variant, const DeviceInfo& device) {
  const int64_t shared = device.shared_memory_bytes_per_block + kSharedBytesKept;
  return static_cast<int32_t>(
      std::min<int64_t>(shared / (variant.shared_bytes() + kSharedBytesKept),
                        kRegistersPerSm / (kRegistersPerThread * variant.num_threads())));
}

// The first tile of which an SM holds enough warps, or the most.
KernelChoice choose(const AttentionSpec& spec, const DeviceInfo& device,
                    std::span<const TilesOf> rows, int32_t enough) {
  const int32_t head_dim = std::max(spec.head_dim_qk, spec.dim_vo());
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const TilesOf& tiles) {
    return head_dim <= tiles.max_head_dim;
  });
  if (row == rows.end()) fail(ErrorCode::kInternal, "no tile for head dim ", head_dim);
  KernelChoice best{};
  int32_t most = 0;
  for (const Tile& tile : row->tiles) {
    const AttentionVariant variant = variant_of(spec, tile);
    if (terms_of(variant) > tile.most_terms || device.compute_capability >= tile.capability_below)
      continue;
    const int32_t blocks = blocks_per_sm(variant, device);
    const int32_t warps = std::min(blocks * tile.num_warps, enough);
    if (warps > most) best = {variant, blocks}, most = warps;
  }
  if (best.blocks_per_sm == 0)
    fail(ErrorCode::kInternal, "head dims ", spec.head_dim_qk, " and ", spec.dim_vo(), " on ",
         device.name, ": no tile fits in ", device.shared_memory_bytes_per_block, " bytes");
  return best;
}

}  // namespace

std::array<KernelChoice, kNumTiles> choose_kernels(const AttentionSpec& spec,
                                                   const DeviceInfo& device) {
  return {choose(spec, device, kDecodeTiles, kDecodeWarps),
          choose(spec, device, kSmallTiles, kDecodeWarps),
          choose(spec, device, kMediumTiles, kPrefillWarps),
          choose(spec, device, kPrefillTiles, kPrefillWarps)};
}

}  // namespace rapt::flash_attention
