// The decode kernel on tiles, for bf16: K and V go from the cache straight into tiles, as they lie,
// so that a line costs a sixteenth of an instruction. The processor's window then holds many lines,
// and the rest, most of it the softmax, is hidden behind memory.
//
// A tile is half a block of keys high. With R = kRows rows:
//   S [16 keys][R]     += K [16 keys][32 dims] x Q [16 pairs of dims][R]
//   O [2][R][16 dims]  += P [2][R][16 keys] x V [16 keys][32 dims]
// A product takes pairs, and V's pairs are neighbouring dims, not keys. So P has each probability
// twice: as the pair (p, 0), which picks the even dims, and as (0, p). Half of these products are
// with zero, but there are more of them in a cycle than memory can bring lines for.
//
// Where a row doesn't see all keys of a half it takes its own with vectors, whatever the rows
// beside it see.
#pragma once

#include "backends/cpu/bf16_rows-inl.hpp"
#include "backends/cpu/decoder-inl.hpp"
#include "backends/cpu/isa/tables.hpp"
#include "backends/cpu/page_starts-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr int kHalfKeys = kTileRows, kHalves = kBlockKeys / kHalfKeys;

struct TileRows : LacedBf16Rows<EvenOddLacing> {
  static constexpr int kQueryBytes = 2 * sizeof(BFloat);  // as rows, and as tiles
};

template <int kRows>
class TileDecoder : Decoder<TileRows, PageStarts, kRows> {
  using Base = Decoder<TileRows, PageStarts, kRows>;
  using Base::blocks_, Base::heads_, Base::padded_rows_, Base::problem_, Base::rows_,
      Base::visible_, Base::whole_;
  using Base::outputs, Base::probabilities, Base::queries, Base::scores, Base::state;

  static constexpr int kKeys = kTileKeys<kRows>;
  static constexpr int kStep = TileRows::kStep;  // dims of a tile
  static constexpr uint32_t kAll = (uint32_t{1} << kRows) - 1;
  static constexpr int kScoreFloats = kHalfKeys * kRows;

  // Numbers of the tiles.
  static constexpr int kS = 0, kK = 1, kQ = 2, kO = 3, kP = 4, kV = 6;  // P: one for each half
  static constexpr TileShape kOfKeys{kTileRows, 4 * kRows}, kOfRows{2 * kRows, kTileBytes};

 public:
  using Base::Base;

  void run() {
    this->prepare();
    for (int head = 0; head < heads_; head++) keep_query_tiles(head);
    begin_tiles({kOfKeys, {}, kOfKeys, kOfRows, kOfRows, kOfRows, {}, {}});
    for (; !blocks_.done(); blocks_.advance())
      if (this->mask(blocks_.block())) take(blocks_.block());
    end_tiles();
    for (int head = 0; head < heads_; head++)
      for (int r = 0; r < rows_; r++) this->finish(head, r);
  }

 private:
  // [steps][16 pairs of dims][kRows] of the rows from r on.
  BFloat* query_tiles(int head, int r) const { return queries(head, padded_rows_ + r); }
  void keep_query_tiles(int head) const {
    for (int r = 0; r < padded_rows_; r += kRows)
      for (int d = 0; d < problem_.head_dim_qk; d += kStep)
        for (int pair = 0; 2 * pair < kStep; pair++)
          for (int i = 0; i < kRows; i++)
            __builtin_memcpy(query_tiles(head, r) + d * kRows + 2 * (pair * kRows + i),
                             queries(head, r) + d * kRows + i * kStep + 2 * pair,
                             2 * sizeof(BFloat));
  }

  // Which of the rows from r on see all keys of a half: bits.
  uint32_t whole_rows(int r, int half) const {
    if (whole_) return kAll;
    constexpr uint32_t kHalf = (uint32_t{1} << kHalfKeys) - 1;
    uint32_t bits = 0;
    for (int i = 0; i < kRows; i++) {
      const uint32_t visible = visible_[r + i < rows_ ? r + i : 0];
      bits |= uint32_t{(visible >> (half * kHalfKeys) & kHalf) == kHalf} << i;
    }
    return bits;
  }

  // In the order of KeyBlocks.
  void take(const TokenBlock& block) {
    if (!blocks_.tokens_first()) {
      for (int head = 0; head < heads_; head++) {
        blocks_.seek_keys(head);
        for (int half = 0; half < kHalves; half++) score(block, head, half);
        blocks_.seek_values(head);
        add_values(block, head);
      }
      return;
    }
    blocks_.seek_keys(0);
    for (int half = 0; half < kHalves; half++)
      for (int head = 0; head < heads_; head++) score(block, head, half);
    blocks_.seek_values(0);
    for (int head = 0; head < heads_; head++) add_values(block, head);
  }

  // The scores of a half as products leave them, keys by rows, if they are of use to some row.
  void score(const TokenBlock& block, int head, int half) {
    for (int r = 0; r < padded_rows_; r += kRows) {
      if (whole_rows(r, half) == 0) continue;
      const std::byte* const keys = block.k[half * kHalfKeys] + blocks_.k_offset(head);
      const BFloat* const q = query_tiles(head, r);
      tile_zero<kS>();
      for (int d = 0; d < problem_.head_dim_qk; d += kStep) {
        tile_load<kK>(keys + d * int{sizeof(BFloat)}, problem_.k_token_stride);
        tile_load<kQ>(q + d * kRows, kOfKeys.row_bytes);
        tile_dot_bf16<kS, kK, kQ>();
        if (r == 0) ask();
      }
      tile_store<kS>(scores(head, r) + half * kScoreFloats, kOfKeys.row_bytes);
    }
  }
  // A tile of K or V is being read.
  void ask() { [[maybe_unused]] const PageAhead::Ask<kTileRows * kTileBytes> ask(blocks_.ahead()); }

  // The same rows by keys, and those of rows that don't see all of the half.
  void put_in_order(const TokenBlock& block, int head, int r, int half) {
    const uint32_t rows = whole_rows(r, half);
    if (kRows == 1 && rows == kAll) return;
    uint32_t lanes = 0;
    for (int i = 0; i < kRows; i++)
      if (rows >> i & 1) lanes |= ((uint32_t{1} << kKeys) - 1) << (i * kKeys);
    float* const s = scores(head, r) + half * kScoreFloats;
    for (int t = 0; t < kRows; t++) {
      Vec x = rows_first<kRows>(load(s + t * kWidth));
      if (rows != kAll)
        x = select(lanes_of(lanes), x, own_scores(block, head, r, half * kHalfKeys + t * kKeys));
      store(s + t * kWidth, x);
    }
  }
  [[gnu::noinline]] Vec own_scores(const TokenBlock& block, int head, int r, int key) {
    const std::byte* keys[kKeys];
    for (int k = 0; k < kKeys; k++)
      keys[k] = block.k[clamp(key + k, this->first_visible_, this->last_visible_)];
    return score_tile<TileRows, kRows>(queries(head, r), keys, blocks_.k_offset(head),
                                       problem_.head_dim_qk, this->read_again_);
  }

  void add_values(const TokenBlock& block, int head) {
    if (whole_) ask_for_values(block, head);
    for (int r = 0; r < padded_rows_; r += kRows)
      for (int half = 0; half < kHalves; half++) put_in_order(block, head, r, half);
    this->weigh(block, head);
    for (int r = 0; r < padded_rows_; r += kRows) {
      decay(head, r);
      for (int half = 0; half < kHalves; half++)
        spread_rows<kRows>(probabilities(head, r) + half * kScoreFloats, spread_[half]);
      if (whole_)
        add_block(block, head, r);
      else
        for (int half = 0; half < kHalves; half++) add_half(block, head, r, half);
    }
  }

  // What memory can bring while the softmax keeps the processor from looking ahead: the first lines
  // of each value.
  RAPT_ALWAYS_INLINE void ask_for_values(const TokenBlock& block, int head) const {
    constexpr int kLines = 2, kLine = 64;
    for (int i = 0; i < kBlockKeys; i++)
      for (int line = 0; line < kLines; line++)
        __builtin_prefetch(block.v[i] + blocks_.v_offset(head) + line * kLine, 0, 2);
  }

  void decay(int head, int r) const {
    const Vec decays = load(state(head, r).decays);
    if (!any(less(decays, set1(1)))) return;
    for (int d = 0; d < problem_.head_dim_vo; d += kWidth)
      for (int i = 0; i < kRows; i++) {
        float* const out = outputs(head, r) + d * kRows + i * kWidth;
        store(out, load(out) * set1(state(head, r).decays[i * kKeys]));
      }
  }

  const std::byte* values_of(const TokenBlock& block, int head, int half, int d) const {
    return block.v[half * kHalfKeys] + blocks_.v_offset(head) + d * int{sizeof(BFloat)};
  }
  void add_block(const TokenBlock& block, int head, int r) {
    tile_load<kP>(spread_[0], kTileBytes);
    tile_load<kP + 1>(spread_[1], kTileBytes);
    for (int d = 0; d < problem_.head_dim_vo; d += kStep) {
      float* const out = outputs(head, r) + d * kRows;
      tile_load<kO>(out, kTileBytes);
      tile_load<kV>(values_of(block, head, 0, d), problem_.v_token_stride);
      tile_dot_bf16<kO, kP, kV>();
      if (r == 0) ask();
      tile_load<kV>(values_of(block, head, 1, d), problem_.v_token_stride);
      tile_dot_bf16<kO, kP + 1, kV>();
      if (r == 0) ask();
      tile_store<kO>(out, kTileBytes);
    }
  }
  // What a row doesn't see may hold NaN: of products only rows that see all of the half are taken.
  [[gnu::noinline]] void add_half(const TokenBlock& block, int head, int r, int half) {
    const uint32_t rows = whole_rows(r, half);
    if (rows != 0) tile_load<kP>(spread_[half], kTileBytes);
    for (int d = 0; d < problem_.head_dim_vo && rows != 0; d += kStep) {
      alignas(64) float sums[2 * kRows * kWidth];
      float* const out = outputs(head, r) + d * kRows;
      tile_load<kO>(out, kTileBytes);
      tile_load<kV>(values_of(block, head, half, d), problem_.v_token_stride);
      tile_dot_bf16<kO, kP, kV>();
      tile_store<kO>(sums, kTileBytes);
      for (int i = 0; i < 2 * kRows; i++)
        if (rows >> (i % kRows) & 1) store(out + i * kWidth, load(sums + i * kWidth));
    }
    for (int i = 0; i < kRows && r + i < rows_; i++)
      if (!(rows >> i & 1))
        this->add_own_values(block, head, r + i, half * kHalfKeys, (half + 1) * kHalfKeys, nullptr,
                             this->read_again_);
  }

  alignas(64) BFloat spread_[kHalves][2 * kRows * kTileBytes / sizeof(BFloat)];  // P of the halves
};

// Halves of blocks lie in one page each, and steps are whole.
inline bool tiles_serve(const Problem& problem) {
  return problem.dtype == DType::kBFloat16 && problem.page_size % kHalfKeys == 0 &&
         problem.head_dim_qk % TileRows::kStep == 0 && problem.head_dim_vo % TileRows::kStep == 0 &&
         !problem.custom_mask && tiles_permitted();
}

inline void amx_decode(const Problem& problem, const Request& request, const Work& work,
                       const Partials& partials, std::byte* scratch) {
  if (!tiles_serve(problem))
    return kAvx512Bf16Kernels.decode(problem, request, work, partials, scratch);
  decode_rows<TileDecoder>(problem, request, work, partials, scratch);
}

}  // namespace
}  // namespace rapt::cpu
