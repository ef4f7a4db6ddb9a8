// The decode kernel: few rows against many keys, bound by the memory that K and V come from.
//
// Traffic: a key of a KV head is read once, for all query heads of its group and all query tokens
// (rows); 2 * D * sizeof(T) bytes for 4 * D * rows flops. Keys are taken in blocks at absolute
// multiples of kBlockKeys, all KV heads of the work at each block, since a page's heads are
// neighbours in memory: 16 tokens of 8 heads of 128 bf16 are one run of 32 KiB. KeyBlocks and
// LookAhead ask for what comes next through the page table, since the processor's own prefetcher
// stops at every page.
// Accumulators (heads * rows * D floats) stay in the innermost caches.
//
// A row's arithmetic depends on its own visible keys alone, never on the rows and heads beside it:
// lanes stand for absolute key positions, and where rows see different keys of a block, each takes
// its own.
#pragma once

#include "backends/cpu/decode_layout-inl.hpp"
#include "backends/cpu/decode_softmax-inl.hpp"
#include "backends/cpu/epilogue-inl.hpp"
#include "backends/cpu/float_rows-inl.hpp"
#include "backends/cpu/kernels.hpp"
#include "backends/cpu/key_blocks-inl.hpp"
#include "backends/cpu/scale-inl.hpp"
#include "backends/cpu/visible-inl.hpp"

namespace rapt::cpu {
namespace {

// Some rows of a work, in tiles of kRows. Pieces: what is asked of memory ahead.
template <typename Rows, typename Pieces, int kRows>
class Decoder {
  using T = typename Rows::Element;
  using Query = typename Rows::Query;
  using Probability = typename Rows::Probability;
  static constexpr int kKeys = kTileKeys<kRows>;

 public:
  // Rows [row_begin, row_begin + num_rows), at most kMaxDecodeRows.
  Decoder(const Problem& problem, const Request& request, const Work& work,
          const Partials& partials, std::byte* scratch, int row_begin, int num_rows)
      : problem_(problem),
        request_(request),
        work_(work),
        partials_(partials),
        heads_(work.kv_head_end - work.kv_head_begin),
        row_begin_(row_begin),
        rows_(num_rows),
        padded_rows_(round_up_to(num_rows, kRows)),
        layout_(problem, padded_rows_, kRows, Rows::kQueryBytes),
        scratch_(scratch),
        blocks_(problem, request, work, find_visible(), sizeof(T), scratch + layout_.head(heads_)) {
  }

  void run() {
    prepare();
    for (; !blocks_.done(); blocks_.advance())
      if (mask(blocks_.block())) take(blocks_.block());
    for (int head = 0; head < heads_; head++)
      for (int r = 0; r < rows_; r++) finish(head, r);
  }

 protected:
  int token_of(int r) const { return (row_begin_ + r) / problem_.group; }
  int64_t query_head_of(int head, int r) const {
    return int64_t{work_.kv_head_begin + head} * problem_.group + (row_begin_ + r) % problem_.group;
  }
  int64_t position_of(int r) const { return token_of(r) + request_.kv_len - request_.query_len; }
  // What belongs to a head, all in tiles of kRows of its padded_rows_ rows: queries, outputs, the
  // running softmax, and for blocks of keys the scores and probabilities. r: a multiple of kRows.
  template <typename Part>
  Part* part(int head, int64_t offset) const {
    return reinterpret_cast<Part*>(scratch_ + layout_.head(head) + offset);
  }
  Query* queries(int head, int r) const { return part<Query>(head, 0) + r * layout_.query_stride; }
  float* outputs(int head, int r) const {
    return part<float>(head, layout_.out) + r * layout_.out_stride;
  }
  RowTile<kRows>& state(int head, int r) const {
    return part<RowTile<kRows>>(head, layout_.states)[r / kRows];
  }
  // What a row's output decays by with the current block.
  const float* decay_of(int head, int r) const {
    return state(head, tile_of(r)).decays + r % kRows * kKeys;
  }
  float* scores(int head, int r) const {
    return part<float>(head, layout_.scores) + r * kBlockKeys;
  }
  Probability* probabilities(int head, int r) const {
    return part<Probability>(head, layout_.probabilities) + r * kBlockKeys;
  }
  static int tile_of(int r) { return r / kRows * kRows; }
  // Its vectors are kRows * kWidth floats apart.
  float* output(int head, int r) const { return outputs(head, tile_of(r)) + r % kRows * kWidth; }
  const std::byte* zeros() const { return scratch_; }
  float* row_in_order() const { return reinterpret_cast<float*>(scratch_ + layout_.row_bytes()); }

  // Keys that some row sees by position.
  Range find_visible() {
    Range keys{work_.key_end, work_.key_begin};
    common_ = {work_.key_begin, work_.key_end};
    for (int r = 0; r < rows_; r++) {
      const Range own = visible_range(problem_, request_, work_, token_of(r));
      ranges_[r] = own;
      common_ = {larger(common_.begin, own.begin), smaller(common_.end, own.end)};
      if (own.begin >= own.end) continue;
      keys = {smaller(keys.begin, own.begin), larger(keys.end, own.end)};
    }
    return keys.begin < keys.end ? keys : Range{0, 0};
  }

  void prepare() {
    __builtin_memset(scratch_, 0, static_cast<size_t>(layout_.row_bytes()));
    for (int head = 0; head < heads_; head++) {
      __builtin_memset(queries(head, 0), 0,
                       static_cast<size_t>(padded_rows_) * layout_.query_stride * sizeof(Query));
      __builtin_memset(outputs(head, 0), 0,
                       static_cast<size_t>(padded_rows_) * layout_.out_stride * sizeof(float));
      for (int r = 0; r < rows_; r++)
        Rows::template store_query<kRows>(
            queries(head, tile_of(r)), r % kRows,
            row_at<T>(problem_.q, (request_.query_start + token_of(r)) * problem_.q_token_stride +
                                      query_head_of(head, r) * problem_.q_head_stride),
            problem_.head_dim_qk);
      const int exponent = score_scale(problem_, work_.kv_head_begin + head).query_exponent;
      if (exponent != 0) {
        scale_queries(queries(head, 0), padded_rows_ * layout_.query_stride, exponent);
        scaled_queries_ = true;
      }
      for (int r = 0; r < padded_rows_; r += kRows) state(head, r).clear();
    }
  }

  // Which keys of the block each row sees; false if none sees any.
  bool mask(const TokenBlock& block) {
    first_visible_ = 0;
    last_visible_ = kBlockKeys - 1;
    whole_ = all_alike_ = !problem_.custom_mask && block.first >= common_.begin &&
                          block.first + kBlockKeys <= common_.end;
    if (whole_) return true;
    uint32_t any = 0;
    all_alike_ = true;
    for (int r = 0; r < rows_; r++) {
      const int begin = larger(ranges_[r].begin - block.first, 0);
      const int end = smaller(ranges_[r].end - block.first, kBlockKeys);
      uint32_t bits = 0;
      if (begin < end) {
        bits = ~uint32_t{0} >> (kBlockKeys - (end - begin)) << begin;
        if (problem_.custom_mask)
          bits &= mask_bits(problem_, request_, token_of(r), block.first + begin, end - begin)
                  << begin;
      }
      visible_[r] = bits;
      any |= bits;
      all_alike_ &= bits == visible_[0];
    }
    if (any == 0) return false;
    first_visible_ = __builtin_ctz(any);
    last_visible_ = 31 - __builtin_clz(any);
    // A run without holes can be multiplied as it is; its pairs of keys are a tile's.
    const uint32_t run = ~uint32_t{0} >> (31 - last_visible_ + first_visible_) << first_visible_;
    all_alike_ &= any == run && first_visible_ % 2 == 0;
    set_seen();
    return true;
  }
  void set_seen() {
    constexpr uint32_t kTile = ~uint32_t{0} >> (32 - kKeys);
    for (int r = 0; r < padded_rows_; r++)
      for (int t = 0; t < kBlockTiles<kRows>; t++) {
        const uint32_t lanes = (visible_[r < rows_ ? r : 0] >> (t * kKeys) & kTile)
                               << (r % kRows * kKeys);
        uint16_t& seen = seen_[r / kRows][t];
        seen = static_cast<uint16_t>(r % kRows == 0 ? lanes : seen | lanes);
      }
  }

  // In the order of KeyBlocks.
  void take(const TokenBlock& block) {
    const int begin = first_visible_, end = last_visible_ + 1;
    if (!blocks_.tokens_first()) {
      for (int head = 0; head < heads_; head++) {
        blocks_.seek_keys(head);
        score(block, head, head + 1, begin / kKeys * kKeys, end);
        blocks_.seek_values(head);
        add_values(block, head, head + 1, begin, end);
      }
      return;
    }
    blocks_.seek_keys(0);
    score(block, 0, heads_, begin / kKeys * kKeys, end);
    blocks_.seek_values(0);
    for (int i = begin; i < end; i += kValueTokens)
      add_values(block, 0, heads_, i, smaller(i + kValueTokens, end));
  }

  // Dot products of every row of the heads with tiles of the block's keys from `begin` on.
  [[gnu::noinline]] void score(const TokenBlock& block, int head_begin, int head_end, int begin,
                               int end) {
    constexpr int kScored = Rows::template kScoredKeys<kRows>;
    for (int group = begin; group < end; group += kScored) {
      const std::byte* keys[kScored];
      // Keys that no row sees may lie outside the work.
      for (int k = 0; k < kScored; k++)
        keys[k] = block.k[clamp(group + k, first_visible_, last_visible_)];
      for (int head = head_begin; head < head_end; head++) {
        const auto score_rows = [&](int i, int r, auto& ahead) RAPT_ALWAYS_INLINE {
          store(scores(head, r) + tile_place<kRows>(0, group + i),
                Rows::template score<kRows>(queries(head, r), keys + i, blocks_.k_offset(head),
                                            problem_.head_dim_qk, ahead));
        };
        int i = 0;
        do {
          score_rows(i, 0, blocks_.ahead());
          for (int r = kRows; r < padded_rows_; r += kRows) score_rows(i, r, read_again_);
        } while ((i += kKeys) < kScored && group + i < end);
      }
    }
  }

  // Turns scores to probabilities where the block's values begin, and adds the values [begin, end)
  // to every row of the heads.
  [[gnu::noinline]] void add_values(const TokenBlock& block, int head_begin, int head_end,
                                    int begin, int end) {
    const bool first = begin == first_visible_;
    if (first)
      for (int head = head_begin; head < head_end; head++) weigh(block, head);
    for (int head = head_begin; head < head_end; head++) {
      if (all_alike_) {
        const auto add_rows = [&](int r, auto& ahead) RAPT_ALWAYS_INLINE {
          accumulate<Rows, kRows, kRows>(
              outputs(head, r),
              {first ? state(head, r).decays : nullptr, probabilities(head, r), begin,
               block.v + begin, end - begin, blocks_.v_offset(head), zeros()},
              problem_.head_dim_vo, ahead);
        };
        add_rows(0, blocks_.ahead());
        for (int r = kRows; r < padded_rows_; r += kRows) add_rows(r, read_again_);
      } else if (first) {
        const auto add_own = [&](int r, auto& ahead) {
          add_own_values(block, head, r, first_visible_, last_visible_ + 1, decay_of(head, r),
                         ahead);
        };
        add_own(0, blocks_.ahead());
        for (int r = 1; r < rows_; r++) add_own(r, read_again_);
      }
    }
  }

  // A row's own keys of the block's [begin, end) alone: what it doesn't see may hold NaN.
  template <typename Ahead>
  [[gnu::noinline]] void add_own_values(const TokenBlock& block, int head, int r, int begin,
                                        int end, const float* decay, Ahead& ahead) {
    const std::byte* values[kBlockKeys];
    Probability own[kBlockKeys + 1];
    int count = 0;
    for (int i = begin; i < end; i++) {
      if (!(visible_[r] >> i & 1)) continue;
      values[count] = block.v[i];
      own[count++] = probabilities(head, tile_of(r))[tile_place<kRows>(r % kRows, i)];
    }
    if (count == 0) return;
    own[count] = Probability{};
    accumulate<Rows, 1, kRows>(output(head, r),
                               {decay, own, 0, values, count, blocks_.v_offset(head), zeros()},
                               problem_.head_dim_vo, ahead);
  }

  // Scores to probabilities.
  void weigh(const TokenBlock& block, int head) {
    const int kv_head = work_.kv_head_begin + head;
    const float scale = scaled_queries_ ? score_scale(problem_, kv_head).factor
                                        : problem_.scale * key_scale(problem_, kv_head);
    const bool in_advance = problem_.softcap != 0 || problem_.alibi_slopes;
    for (int r = 0; r < padded_rows_; r += kRows) {
      if (in_advance)
        adjust<kRows>(scores(head, r), scale, problem_.softcap, bias_of(block, head, r));
      soften<Rows, kRows>(state(head, r), scores(head, r), in_advance ? 1 : scale,
                          whole_ ? nullptr : seen_[r / kRows], probabilities(head, r));
    }
  }

  TileBias bias_of(const TokenBlock& block, int head, int first_row) const {
    TileBias bias{};
    if (!problem_.alibi_slopes) return bias;
    for (int lane = 0; lane < kWidth; lane++) {
      const int r = smaller(first_row + lane / kKeys, rows_ - 1);
      bias.slopes[lane] = problem_.alibi_slopes[query_head_of(head, r)];
      bias.positions[lane] = position_of(r) - block.first;
    }
    return bias;
  }

  void finish(int head, int r) {
    constexpr int kVecs = Rows::kStep / kWidth;
    const float* const row = output(head, r);
    float* const in_order = row_in_order();
    for (int d = 0; d < problem_.head_dim_vo; d += Rows::kStep) {
      Vec vecs[kVecs];
      Rows::load_output(row + d * kRows, kRows * kWidth, vecs);
      for (int i = 0; i < kVecs; i++) store(in_order + d + i * kWidth, vecs[i]);
    }
    write_row<T>(problem_, request_, work_, partials_, work_.kv_head_begin + head, row_begin_ + r,
                 in_order, state(head, tile_of(r)).of_row(r % kRows), kLog2E);
  }

  const Problem& problem_;
  const Request& request_;
  const Work& work_;
  const Partials& partials_;
  const int heads_, row_begin_, rows_, padded_rows_;
  const DecodeLayout layout_;
  std::byte* const scratch_;
  Range ranges_[kMaxDecodeRows], common_;  // keys that a row, that every row sees by position
  KeyBlocks<Pieces> blocks_;
  NoLookAhead read_again_;
  bool scaled_queries_ = false;  // of some head

  // Of the current block.
  uint32_t visible_[kMaxDecodeRows];  // keys of a row; unless whole_
  bool whole_;                        // every row sees every key
  bool all_alike_;  // every row sees exactly the keys [first_visible_, last_visible_]
  int first_visible_, last_visible_;
  uint16_t seen_[kMaxDecodeRows / kRows][kBlockTiles<kRows>];  // lanes of a tile; unless whole_
};

// All rows of a work, by Decoders that are made for so many.
template <template <int kRows> typename DecoderOf>
void decode_rows(const Problem& problem, const Request& request, const Work& work,
                 const Partials& partials, std::byte* scratch) {
  for (int row = work.row_begin; row < work.row_end; row += kMaxDecodeRows) {
    const int count = smaller(kMaxDecodeRows, work.row_end - row);
    if (count == 1)
      DecoderOf<1>(problem, request, work, partials, scratch, row, count).run();
    else if (count == 2)
      DecoderOf<2>(problem, request, work, partials, scratch, row, count).run();
    else
      DecoderOf<4>(problem, request, work, partials, scratch, row, count).run();
  }
}

}  // namespace
}  // namespace rapt::cpu
