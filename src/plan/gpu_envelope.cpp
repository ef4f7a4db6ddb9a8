#include "plan/gpu_envelope.hpp"

#include <algorithm>
#include <limits>

#include "core/check.hpp"

namespace rapt::gpu {
namespace {

// Of a request, for decoding beside prefill: a large tile is better for more.
constexpr int32_t kMaxSmallTiles = 2;

// The first tile of that many rows, or the last.
size_t tile_for(int64_t rows, std::span<const Machine> tiles) {
  size_t i = 0;
  while (i + 1 < tiles.size() && tiles[i].tile_rows < rows) i++;
  return i;
}

}  // namespace

EnvelopeBounds bounds_of(const GraphEnvelope& envelope, const AttentionSpec& spec,
                         std::span<const Machine> tiles) {
  const int64_t group = spec.group(), heads = spec.num_kv_heads, max_tokens = envelope.max_tokens;
  const int64_t request_rows = envelope.query_len_bound() * group;
  check(request_rows <= kMaxRows, "graph envelope: a request of ", envelope.query_len_bound(),
        " query tokens with ", group, " query heads per KV head has ", request_rows,
        " rows, at most ", kMaxRows, ": set a smaller max_query_len");
  // Of those that have queries.
  const int64_t num_requests = std::min<int64_t>(envelope.max_requests, max_tokens);

  EnvelopeBounds bounds;
  std::copy(tiles.begin(), tiles.end(), bounds.tiles.begin());
  const size_t all = tile_for(request_rows, tiles), last = tiles.size() - 1;
  const size_t small = all == last ? tile_for(group, tiles) : all;
  for (size_t i = 0; i < tiles.size(); i++) {
    Machine& tile = bounds.tiles[i];
    if (i != all && !spec.batch_invariant) tile.max_request_tiles = i == small ? kMaxSmallTiles : 0;
    if (tile.max_request_tiles == 0) continue;
    const int64_t rows = tile.tile_rows;
    const int64_t of_request =
        std::min<int64_t>(ceil_div(request_rows, rows), tile.max_request_tiles);
    // Of each request the last may be all but empty.
    const int64_t whole = std::min(num_requests * of_request,
                                   (max_tokens * group + num_requests * (rows - 1)) / rows);
    const int64_t most_pieces =
        max_pieces(tile, spec) * (spec.batch_invariant ? num_requests : int64_t{1});
    const int64_t key_blocks = ceil_div(envelope.max_kv_len, tile.tile_keys);
    const int64_t pieces = key_blocks < 2 ? 0 : std::min(most_pieces, whole * key_blocks);
    bounds.num_works[i] = whole + pieces;
    check(bounds.num_works[i] <= std::numeric_limits<int32_t>::max(),
          "graph envelope: ", envelope.max_requests, " requests of ", max_tokens,
          " query tokens are up to ", bounds.num_works[i],
          " thread blocks, at most 2^31 - 1: make it smaller");
    const int64_t tile_rows = std::min(rows, request_rows);
    bounds.num_partial_rows += pieces * tile_rows * heads;
    const int64_t cut = std::min(whole, pieces / 2);  // of two pieces at least
    bounds.num_merges += cut * ceil_div(tile_rows, device::kMergeRows);
  }
  return bounds;
}

}  // namespace rapt::gpu
