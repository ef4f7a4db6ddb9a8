// The decode kernel: few rows against many keys, bound by the memory that K and V come from.
//
// Traffic: a key of a KV head is read once, for all query heads of its group and all query tokens
// (rows); 2 * D * sizeof(T) bytes for 4 * D * rows flops. Keys are taken in blocks at absolute
// multiples of kBlockKeys, all KV heads of the work at each block, since a page's heads are
// neighbours in memory: 16 tokens of 8 heads of 128 bf16 are one run of 32 KiB. LookAhead asks for
// what comes next through the page table, since the processor's own prefetcher stops at every page.
// Accumulators (heads * rows * D floats) stay in the innermost caches.
//
// A row's arithmetic depends on its own visible keys alone, never on the rows and heads beside it:
// lanes stand for absolute key positions, and where rows see different keys of a block, each takes
// its own.
#pragma once

#include "backends/cpu/float_rows-inl.hpp"
#include "backends/cpu/kernels.hpp"
#include "backends/cpu/look_ahead-inl.hpp"
#include "backends/cpu/softmax-inl.hpp"
#include "backends/cpu/visible-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr int kMaxDecodeRows = 16;
constexpr int kValueTokens = 8;  // whose values are added in one go where heads are neighbours
// Room for a tile of keys that begins at the last one.
constexpr int kScoreStride = kBlockKeys + kWidth;

// Where a call's rows live in scratch: head by head, as close together as the rows allow, since all
// of it is to stay in L1 beside the keys that pass through. Bytes; parts begin at multiples of 64.
struct DecodeLayout {
  int64_t query_stride, out_stride;  // elements of a row
  // From the head's start; its query rows come first.
  int64_t out, maxima, sums, decays, scores, probabilities;
  int64_t head_bytes;

  DecodeLayout(const Problem& problem, int rows, int query_bytes) {
    auto place = [at = int64_t{0}](int64_t bytes) mutable {
      return at = (at + bytes + 63) / 64 * 64;
    };
    query_stride = round_up_to(problem.head_dim_qk, 32);
    out_stride = round_up_to(problem.head_dim_vo, 32);
    out = place(rows * query_stride * query_bytes);
    maxima = place(rows * out_stride * int64_t{sizeof(float)});
    sums = place(rows * int64_t{sizeof(float)});
    decays = place(rows * kWidth * int64_t{sizeof(float)});
    scores = place(rows * int64_t{sizeof(float)});
    probabilities = place(rows * kScoreStride * int64_t{sizeof(float)});
    // An odd number of lines, so that heads don't meet in the same sets of a cache.
    head_bytes = place(rows * kProbabilityStride * int64_t{sizeof(float)}) | 64;
  }

  int64_t zeros_bytes() const { return out_stride * int64_t{sizeof(float)}; }
};

inline size_t decode_scratch_bytes(const Problem& problem) {
  const DecodeLayout layout(problem, kMaxDecodeRows, sizeof(float));
  const auto element = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t pieces = 2 * kBlockKeys * problem.num_kv_heads *
                             (LookAhead::pieces_of(problem.head_dim_qk * element) +
                              LookAhead::pieces_of(problem.head_dim_vo * element)) +
                         LookAhead::kPadding;
  return static_cast<size_t>(layout.zeros_bytes() + problem.num_kv_heads * layout.head_bytes +
                             pieces * int64_t{sizeof(void*)});
}

// Addresses of a block's tokens, head 0; a block is at most kBlockKeys keys, all inside the work.
struct TokenBlock {
  int first = 0;  // key at position 0: a multiple of kBlockKeys
  int begin = 0, end = 0;
  const std::byte* k[kBlockKeys];
  const std::byte* v[kBlockKeys];
};

template <typename T>
class Decoder {
  using Rows = typename RowsOf<T>::type;
  using Query = typename Rows::Query;
  using Probability = typename Rows::Probability;

 public:
  Decoder(const Problem& problem, const Request& request, const Work& work,
          const Partials& partials, std::byte* scratch)
      : problem_(problem),
        request_(request),
        work_(work),
        partials_(partials),
        layout_(problem, kMaxDecodeRows, sizeof(Query)),
        heads_(work.kv_head_end - work.kv_head_begin),
        scratch_(scratch) {
    const int64_t k_bytes = problem.head_dim_qk * int64_t{sizeof(T)};
    const int64_t v_bytes = problem.head_dim_vo * int64_t{sizeof(T)};
    tokens_first_ = heads_ > 1 && problem.k_head_stride == k_bytes &&
                    problem.v_head_stride == v_bytes && problem.k_token_stride > k_bytes;
    k_run_ = run_of(k_bytes, problem.k_token_stride);
    v_run_ = run_of(v_bytes, problem.v_token_stride);
  }

  // Rows [row_begin, row_begin + num_rows), at most kMaxDecodeRows.
  void run(int row_begin, int num_rows) {
    row_begin_ = row_begin;
    rows_ = num_rows;
    if (num_rows == 1) return run_tiled<1>();
    if (num_rows == 2) return run_tiled<2>();
    run_tiled<4>();
  }

 private:
  // In tiles of kRows rows.
  template <int kRows>
  void run_tiled() {
    padded_rows_ = round_up_to(rows_, kRows);
    layout_ = DecodeLayout(problem_, padded_rows_, sizeof(Query));
    ahead_ = LookAhead(scratch_ + layout_.zeros_bytes() + heads_ * layout_.head_bytes);
    find_visible();
    prepare<kRows>();
    TokenBlock blocks[2];
    int current = 0;
    int first = keys_.begin / kBlockKeys * kBlockKeys;
    const bool any = keys_.begin < keys_.end;
    if (any) {
      locate(first, blocks[0]);
      list_block<kRows>(blocks[0]);
    }
    for (; any && first < keys_.end; first += kBlockKeys, current ^= 1) {
      ahead_.advance();
      TokenBlock& next = blocks[current ^ 1];
      next.begin = next.end = 0;
      if (first + kBlockKeys < keys_.end) locate(first + kBlockKeys, next);
      if (mask(blocks[current]))
        take<kRows>(blocks[current], next);
      else
        list_block<kRows>(next);
    }
    for (int head = 0; head < heads_; head++)
      for (int r = 0; r < rows_; r++) finish<kRows>(head, r);
  }

  int token_of(int r) const { return (row_begin_ + r) / problem_.group; }
  int64_t query_head_of(int head, int r) const {
    return int64_t{work_.kv_head_begin + head} * problem_.group + (row_begin_ + r) % problem_.group;
  }
  int64_t position_of(int r) const { return token_of(r) + request_.kv_len - request_.query_len; }
  // What belongs to a head, [padded_rows_, ...]: queries and outputs in tiles, for blocks of keys
  // the scores and probabilities, and the running softmax: the maximum, kWidth partial sums, and
  // what the block before decays by.
  template <typename Part>
  Part* part(int head, int64_t offset) const {
    return reinterpret_cast<Part*>(scratch_ + layout_.zeros_bytes() + head * layout_.head_bytes +
                                   offset);
  }
  Query* query(int head) const { return part<Query>(head, 0); }
  float* out(int head) const { return part<float>(head, layout_.out); }
  float* maxima(int head) const { return part<float>(head, layout_.maxima); }
  float* sums(int head) const { return part<float>(head, layout_.sums); }
  float* decays(int head) const { return part<float>(head, layout_.decays); }
  float* scores(int head) const { return part<float>(head, layout_.scores); }
  Probability* probabilities(int head) const {
    return part<Probability>(head, layout_.probabilities);
  }
  // Its vectors are kTileRows * kWidth floats apart.
  template <int kTileRows>
  float* out_row(int head, int r) const {
    return out(head) + r / kTileRows * kTileRows * layout_.out_stride + r % kTileRows * kWidth;
  }
  const std::byte* zeros() const { return scratch_; }

  void find_visible() {
    keys_ = {work_.key_end, work_.key_begin};
    for (int r = 0; r < rows_; r++) {
      const Range own = visible_range(problem_, request_, work_, token_of(r));
      ranges_[r] = own;
      if (own.begin >= own.end) continue;
      keys_ = {smaller(keys_.begin, own.begin), larger(keys_.end, own.end)};
    }
  }

  template <int kRows>
  void prepare() {
    __builtin_memset(scratch_, 0, static_cast<size_t>(layout_.zeros_bytes()));
    for (int head = 0; head < heads_; head++) {
      __builtin_memset(query(head), 0,
                       static_cast<size_t>(padded_rows_) * layout_.query_stride * sizeof(Query));
      __builtin_memset(out(head), 0,
                       static_cast<size_t>(padded_rows_) * layout_.out_stride * sizeof(float));
      for (int r = 0; r < rows_; r++)
        Rows::template store_query<kRows>(
            query(head) + r / kRows * kRows * layout_.query_stride, r % kRows,
            row_at<T>(problem_.q, (request_.query_start + token_of(r)) * problem_.q_token_stride +
                                      query_head_of(head, r) * problem_.q_head_stride),
            problem_.head_dim_qk);
      for (int r = 0; r < padded_rows_; r++) {
        maxima(head)[r] = kMinusInfinity;
        store(sums(head) + r * kWidth, zero());
      }
    }
  }

  // Addresses of the keys of block `first` that some row may see.
  void locate(int first, TokenBlock& block) const {
    block.first = first;
    block.begin = larger(keys_.begin - first, 0);
    block.end = smaller(keys_.end - first, kBlockKeys);
    if (problem_.page_size == 0) {
      for (int i = block.begin; i < block.end; i++) {
        const int64_t row = request_.kv_start + first + i;
        block.k[i] = problem_.k + row * problem_.k_token_stride;
        block.v[i] = problem_.v + row * problem_.v_token_stride;
      }
      return;
    }
    const int64_t page_size = problem_.page_size;
    int64_t page = (first + block.begin) / page_size, slot = (first + block.begin) % page_size;
    for (int i = block.begin; i < block.end; page++, slot = 0) {
      const int64_t id = request_.pages[page];
      const std::byte* k = problem_.k + id * problem_.k_page_stride;
      const std::byte* v = problem_.v + id * problem_.v_page_stride;
      for (; i < block.end && slot < page_size; i++, slot++) {
        block.k[i] = k + slot * problem_.k_token_stride;
        block.v[i] = v + slot * problem_.v_token_stride;
      }
    }
  }

  // Which keys of the block each row sees, as bits; false if none sees any.
  bool mask(const TokenBlock& block) {
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
    // A run without holes can be multiplied as it is.
    const uint32_t run = ~uint32_t{0} >> (31 - last_visible_ + first_visible_) << first_visible_;
    all_alike_ &= any == run;
    return true;
  }

  // In the order that list_block() gives. Meanwhile `next` is listed, piece by piece: while all of
  // it was listed, memory would rest.
  template <int kRows>
  void take(const TokenBlock& block, const TokenBlock& next) {
    const int begin = first_visible_, end = last_visible_ + 1, skipped = begin - block.begin;
    const int64_t k_pieces = k_run_.pieces(block.end - block.begin);
    const int64_t pieces = k_pieces + v_run_.pieces(block.end - block.begin);
    if (!tokens_first_) {
      for (int head = 0; head < heads_; head++) {
        list_head(next, head);
        ahead_.seek(head * pieces + k_run_.pieces(skipped));
        score<kRows>(block, head, head + 1, begin, end);
        ahead_.seek(head * pieces + k_pieces + v_run_.pieces(skipped));
        accumulate<kRows>(block, head, head + 1, begin, end);
      }
      return;
    }
    constexpr int kKeys = kWidth / kRows;
    int listed = next.begin;
    for (int i = begin; i < end; i += kKeys) {
      listed = list_keys<kKeys>(next, listed, listed + kKeys);
      ahead_.seek(k_run_.pieces(i - block.begin));
      score<kRows>(block, 0, heads_, i, smaller(i + kKeys, end));
    }
    list_keys<kKeys>(next, listed, next.end);
    listed = next.begin;
    for (int i = begin; i < end; i += kValueTokens) {
      listed = list_values(next, listed, listed + kValueTokens);
      ahead_.seek(k_pieces + v_run_.pieces(i - block.begin));
      accumulate<kRows>(block, 0, heads_, i, smaller(i + kValueTokens, end));
    }
    list_values(next, listed, next.end);
  }

  // What of a block will be read, in that order: a head's tokens are neighbours and taken head by
  // head, or else a token's heads are, and a few tokens are taken of all heads, then the next.
  template <int kRows>
  void list_block(const TokenBlock& block) {
    if (tokens_first_) {
      list_keys<kWidth / kRows>(block, block.begin, block.end);
      list_values(block, block.begin, block.end);
    } else {
      for (int head = 0; head < heads_; head++) list_head(block, head);
    }
  }
  void list_head(const TokenBlock& block, int head) {
    list<1>(block.k, block.begin, block.end, k_offset(head), k_run_);
    list<1>(block.v, block.begin, block.end, v_offset(head), v_run_);
  }
  // All heads of tokens [begin, end), kKeys tokens at a time; returns the end.
  template <int kKeys>
  int list_keys(const TokenBlock& block, int begin, int end) {
    end = smaller(end, block.end);
    list<kKeys>(block.k, begin, end, k_offset(0), k_run_);
    return end;
  }
  int list_values(const TokenBlock& block, int begin, int end) {
    end = smaller(end, block.end);
    list<kValueTokens>(block.v, begin, end, v_offset(0), v_run_);
    return end;
  }

  // Neighbours in memory: rows of num_tokens tokens, `bytes` in all.
  struct Run {
    int num_tokens;
    int64_t bytes;
    int64_t pieces(int tokens) const {
      return (tokens + num_tokens - 1) / num_tokens * LookAhead::pieces_of(bytes);
    }
  };

  // One token's heads, or tokens of one head that share a piece.
  Run run_of(int64_t row_bytes, int64_t token_stride) const {
    if (tokens_first_) return {1, heads_ * row_bytes};
    int tokens = 1;
    while (token_stride == row_bytes && 2 * tokens * row_bytes <= LookAhead::kPieceBytes &&
           problem_.page_size % (2 * tokens) == 0)
      tokens *= 2;
    return {tokens, tokens * row_bytes};
  }

  // Tokens [begin, end), kRuns runs at a time piece by piece.
  template <int kRuns>
  void list(const std::byte* const* tokens, int begin, int end, int64_t offset, const Run& run) {
    for (int i = begin; i < end;) {
      const std::byte* starts[kRuns];
      int count = 0;
      for (; count < kRuns && i < end; i += run.num_tokens) starts[count++] = tokens[i] + offset;
      ahead_.template add<kRuns>(starts, count, run.bytes);
    }
  }

  int64_t k_offset(int head) const { return (work_.kv_head_begin + head) * problem_.k_head_stride; }
  int64_t v_offset(int head) const { return (work_.kv_head_begin + head) * problem_.v_head_stride; }

  // Dot products of every row of the heads with the block's keys [begin, end).
  template <int kRows>
  [[gnu::noinline]] void score(const TokenBlock& block, int head_begin, int head_end, int begin,
                               int end) {
    constexpr int kKeys = kWidth / kRows;
    for (int i = begin; i < end; i += kKeys) {
      const std::byte* keys[kKeys];
      for (int k = 0; k < kKeys; k++) keys[k] = block.k[smaller(i + k, end - 1)];
      for (int head = head_begin; head < head_end; head++) {
        const auto score_rows = [&](int r, auto& ahead) RAPT_ALWAYS_INLINE {
          alignas(64) float tile[kWidth];
          store(tile, score_tile<Rows, kRows, kKeys>(query(head) + r * layout_.query_stride, keys,
                                                     k_offset(head), problem_.head_dim_qk, ahead));
          for (int row = 0; row < kRows; row++)
            __builtin_memcpy(scores(head) + (r + row) * kScoreStride + i, tile + row * kKeys,
                             kKeys * sizeof(float));
        };
        score_rows(0, ahead_);
        for (int r = kRows; r < padded_rows_; r += kRows) score_rows(r, read_again_);
      }
    }
  }

  // Turns scores to probabilities where the block's values begin, and adds the values [begin, end)
  // to every row of the heads.
  template <int kRows>
  [[gnu::noinline]] void accumulate(const TokenBlock& block, int head_begin, int head_end,
                                    int begin, int end) {
    const bool first = begin == first_visible_;
    for (int head = head_begin; head < head_end; head++) {
      if (first) soften(block, head);
      if (all_alike_) {
        const auto add_tile = [&](int r, auto& ahead) RAPT_ALWAYS_INLINE {
          cpu::accumulate<Rows, kRows, kRows>(
              out(head) + r * layout_.out_stride,
              {first ? decays(head) + r : nullptr,
               probabilities(head) + r * kProbabilityStride + begin, block.v + begin, end - begin,
               v_offset(head), zeros()},
              problem_.head_dim_vo, ahead);
        };
        add_tile(0, ahead_);
        for (int r = kRows; r < padded_rows_; r += kRows) add_tile(r, read_again_);
      } else if (first) {
        accumulate_own<kRows>(block, head, 0, ahead_);
        for (int r = 1; r < rows_; r++) accumulate_own<kRows>(block, head, r, read_again_);
      }
    }
  }

  // A row's own keys of the whole block alone: what it doesn't see may hold NaN.
  template <int kTileRows, typename Ahead>
  [[gnu::noinline]] void accumulate_own(const TokenBlock& block, int head, int r, Ahead& ahead) {
    const std::byte* values[kBlockKeys];
    Probability own[kBlockKeys + 1];
    int count = 0;
    for (int i = first_visible_; i <= last_visible_; i++) {
      if (!(visible_[r] >> i & 1)) continue;
      values[count] = block.v[i];
      own[count++] = probabilities(head)[r * kProbabilityStride + i];
    }
    if (count == 0) return;
    own[count] = Probability{};
    cpu::accumulate<Rows, 1, kTileRows>(
        out_row<kTileRows>(head, r),
        {decays(head) + r, own, values, count, v_offset(head), zeros()}, problem_.head_dim_vo,
        ahead);
  }

  // Scores to probabilities relative to the row's new maximum; what came before decays.
  [[gnu::noinline]] void soften(const TokenBlock& block, int head) {
    constexpr int kVecs = kBlockKeys / kWidth;
    const float scale = problem_.scale * (problem_.k_scale ? scale_of(problem_.k_scale, head) : 1);
    float* row_max = maxima(head);
    float* row_sum = sums(head);
    float* row_decay = decays(head);
    const Vec minus_infinity = set1(kMinusInfinity);
    for (int r = 0; r < padded_rows_; r++) {
      const uint32_t bits = visible_[r < rows_ ? r : 0];
      Vec x[kVecs];
      Vec top = minus_infinity;
      for (int i = 0; i < kVecs; i++) {
        x[i] = load(scores(head) + r * kScoreStride + i * kWidth) * set1(scale);
        if (problem_.softcap != 0)
          x[i] = tanh(x[i] * set1(1 / problem_.softcap)) * set1(problem_.softcap);
        if (problem_.alibi_slopes && r < rows_) x[i] = x[i] - alibi(block, head, r, i);
        const Mask seen = lanes_of(bits >> (i * kWidth));
        x[i] = select(seen, x[i], minus_infinity);
        top = max(x[i], top);
      }
      const float old_max = row_max[r], block_max = reduce_max(top);
      const float new_max = block_max > old_max ? block_max : old_max;
      row_max[r] = new_max;
      // No key with a finite score yet: nothing to weigh, and nothing to decay.
      const float reference = new_max == kMinusInfinity ? 0 : new_max;
      Vec total = zero();
      for (int i = 0; i < kVecs; i++) {
        x[i] = Rows::exp2((x[i] - set1(reference)) * set1(kLog2E));
        total = total + x[i];
      }
      row_decay[r] = old_max == new_max
                         ? 1.0f
                         : first_lane(exp2_accurate(set1((old_max - reference) * kLog2E)));
      store(row_sum + r * kWidth, fma(load(row_sum + r * kWidth), set1(row_decay[r]), total));
      Probability* p = probabilities(head) + r * kProbabilityStride;
      Rows::store_probabilities(p, x, kVecs);
      p[kBlockKeys] = Probability{};
    }
  }

  static float first_lane(Vec x) { return x[0]; }

  Vec alibi(const TokenBlock& block, int head, int r, int i) const {
    const float distance = static_cast<float>(block.first + i * kWidth - position_of(r));
    const float slope = problem_.alibi_slopes[query_head_of(head, r)];
    return abs(lane_numbers() + set1(distance)) * set1(slope);
  }

  float scale_of(const float* scales, int head) const {
    return scales[problem_.scales_per_head ? work_.kv_head_begin + head : 0];
  }

  // Normalises a row and writes it where the work says.
  template <int kTileRows>
  void finish(int head, int r) {
    float max = maxima(head)[r];
    float sum = reduce_add(load(sums(head) + r * kWidth));
    const bool empty = max == kMinusInfinity && sum == 0;  // NaN scores leave the maximum alone
    const int64_t query_head = query_head_of(head, r);
    float weight = 1;  // of the accumulated row before it is divided by the sum
    if (work_.partial < 0 && problem_.sinks) {
      const float sink = problem_.sinks[query_head];
      const float top = sink > max ? sink : max;
      if (top != kMinusInfinity) {
        weight = __builtin_expf(max - top);
        // +inf takes all the weight, and inf - inf would be NaN.
        sum = sum * weight + (sink == top ? 1 : __builtin_expf(sink - top));
        max = top;
      }
    }
    const float lse =
        max == kMinusInfinity && sum == 0
            ? max
            : static_cast<float>(double{max} + __builtin_log(static_cast<double>(sum)));
    const float v_scale = problem_.v_scale ? scale_of(problem_.v_scale, head) : 1;
    const float factor = empty ? 0 : weight * v_scale / sum;
    const float* row = out_row<kTileRows>(head, r);
    if (work_.partial >= 0) {
      const int64_t index = work_.partial + int64_t{head} * (work_.row_end - work_.row_begin) +
                            row_begin_ + r - work_.row_begin;
      partials_.lse[index] = lse;
      write<kTileRows>(partials_.out + index * partials_.out_stride, row, factor);
      return;
    }
    const int64_t token = request_.query_start + token_of(r);
    write<kTileRows>(reinterpret_cast<T*>(problem_.out + token * problem_.out_token_stride +
                                          query_head * problem_.out_head_stride),
                     row, factor);
    if (problem_.lse)
      *reinterpret_cast<float*>(reinterpret_cast<std::byte*>(problem_.lse) +
                                query_head * problem_.lse_head_stride +
                                token * problem_.lse_token_stride) = lse;
  }

  template <int kTileRows, typename Out>
  void write(Out* to, const float* row, float factor) const {
    constexpr int kVecs = Rows::kStep / kWidth;
    const int64_t dim = problem_.head_dim_vo;
    for (int64_t d = 0; d < dim; d += Rows::kStep) {
      Vec vecs[kVecs];
      Rows::load_output(row + d * kTileRows, kTileRows * kWidth, vecs);
      for (int i = 0; i < kVecs; i++) {
        const int64_t at = d + i * kWidth;
        if (at + kWidth <= dim)
          store(to + at, vecs[i] * set1(factor));
        else if (at < dim)
          store(to + at, vecs[i] * set1(factor), first_lanes(static_cast<int>(dim - at)));
      }
    }
  }

  const Problem& problem_;
  const Request& request_;
  const Work& work_;
  const Partials& partials_;
  DecodeLayout layout_;
  const int heads_;
  std::byte* scratch_;

  int row_begin_, rows_, padded_rows_;
  Range keys_;  // all that some row sees by position
  Range ranges_[kMaxDecodeRows];

  // Of the current block.
  uint32_t visible_[kMaxDecodeRows];
  bool all_alike_;  // every row sees exactly the keys [first_visible_, last_visible_]
  int first_visible_, last_visible_;

  bool tokens_first_;  // a token's heads lie side by side, not a head's tokens
  Run k_run_, v_run_;
  LookAhead ahead_{nullptr};
  NoLookAhead read_again_;
};

template <typename T>
void decode_as(const Problem& problem, const Request& request, const Work& work,
               const Partials& partials, std::byte* scratch) {
  Decoder<T> decoder(problem, request, work, partials, scratch);
  for (int row = work.row_begin; row < work.row_end; row += kMaxDecodeRows)
    decoder.run(row, smaller(kMaxDecodeRows, work.row_end - row));
}

inline void decode(const Problem& problem, const Request& request, const Work& work,
                   const Partials& partials, std::byte* scratch) {
  switch (problem.dtype) {
    case DType::kFloat32:
      return decode_as<float>(problem, request, work, partials, scratch);
    case DType::kFloat16:
      return decode_as<Half>(problem, request, work, partials, scratch);
    default:
      return decode_as<BFloat>(problem, request, work, partials, scratch);
  }
}

}  // namespace
}  // namespace rapt::cpu
