// The decode kernel: few rows against many keys, bound by the memory that K and V come from.
//
// Traffic: a key of a KV head is read once, for all query heads of its group and all query tokens
// (rows); 2 * D * sizeof(T) bytes for 4 * D * rows flops. Keys are taken in blocks at absolute
// multiples of kBlockKeys, all KV heads of the work at each block, since a page's heads are
// neighbours in memory: 16 tokens of 8 heads of 128 bf16 are one run of 32 KiB. While some KiB are
// computed the next are prefetched through the page table, in the order they lie in memory; the
// processor's own prefetcher stops at every page. (Prefetching a whole block ahead, into L2, gave
// two thirds of the bandwidth: every line then misses L1 twice.) Accumulators (heads * rows * D
// floats) stay in the innermost caches.
//
// A row's arithmetic depends on its own visible keys alone, never on the rows and heads beside it:
// lanes stand for absolute key positions, and where rows see different keys of a block, each takes
// its own.
#pragma once

#include "backends/cpu/float_rows-inl.hpp"
#include "backends/cpu/kernels.hpp"
#include "backends/cpu/softmax-inl.hpp"
#include "backends/cpu/visible-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr int kMaxDecodeRows = 16;
constexpr int kBlockKeys = 32;  // as many as bits of a mask
// Room for a tile of keys that begins at the last one.
constexpr int kScoreStride = kBlockKeys + kWidth;
constexpr int64_t kCacheLine = 64;

constexpr float kNoDecay[kMaxDecodeRows] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
constexpr int64_t kBlockScratchBytes =
    kMaxDecodeRows * (kScoreStride + 2 * kBlockKeys + 1) * int64_t{sizeof(float)};

// Where rows of one call live in scratch; the same for every instruction set and element type up to
// the padding. All sizes are multiples of 64 bytes.
struct DecodeLayout {
  int64_t query_stride, out_stride;             // elements, floats
  int64_t query_bytes, out_bytes, state_bytes;  // of one head's kMaxDecodeRows rows
  int64_t zeros_bytes;

  explicit DecodeLayout(const Problem& problem) {
    query_stride = round_up_to(problem.head_dim_qk, 32);
    out_stride = round_up_to(problem.head_dim_vo, 32);
    query_bytes = kMaxDecodeRows * query_stride * int64_t{sizeof(float)};
    out_bytes = kMaxDecodeRows * out_stride * int64_t{sizeof(float)};
    state_bytes = kMaxDecodeRows * (1 + kWidth) * int64_t{sizeof(float)};
    zeros_bytes = out_stride * int64_t{sizeof(float)};
  }
  int64_t bytes(int64_t heads) const {
    return zeros_bytes + heads * (query_bytes + out_bytes + state_bytes + kBlockScratchBytes);
  }
};

inline size_t decode_scratch_bytes(const Problem& problem) {
  return static_cast<size_t>(DecodeLayout(problem).bytes(problem.num_kv_heads));
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

  // One head's rows against one block.
  struct BlockScratch {
    alignas(64) float scores[kMaxDecodeRows][kScoreStride];
    alignas(64) Probability probabilities[kMaxDecodeRows][2 * kBlockKeys];
    alignas(64) float decay[kMaxDecodeRows];
  };
  static_assert(sizeof(BlockScratch) <= kBlockScratchBytes);

 public:
  Decoder(const Problem& problem, const Request& request, const Work& work,
          const Partials& partials, std::byte* scratch)
      : problem_(problem),
        request_(request),
        work_(work),
        partials_(partials),
        layout_(problem),
        heads_(work.kv_head_end - work.kv_head_begin) {
    zeros_ = scratch;
    queries_ = scratch + layout_.zeros_bytes;
    outs_ = queries_ + heads_ * layout_.query_bytes;
    states_ = outs_ + heads_ * layout_.out_bytes;
    blocks_ = states_ + heads_ * layout_.state_bytes;
    const int64_t k_bytes = problem.head_dim_qk * int64_t{sizeof(T)};
    const int64_t v_bytes = problem.head_dim_vo * int64_t{sizeof(T)};
    tokens_first_ = heads_ > 1 && problem.k_head_stride == k_bytes &&
                    problem.v_head_stride == v_bytes && problem.k_token_stride > k_bytes;
    k_lines_ = static_cast<int>((k_bytes + kCacheLine - 1) / kCacheLine);
    v_lines_ = static_cast<int>((v_bytes + kCacheLine - 1) / kCacheLine);
  }

  // Rows [row_begin, row_begin + num_rows), at most kMaxDecodeRows.
  void run(int row_begin, int num_rows) {
    row_begin_ = row_begin;
    rows_ = num_rows;
    tile_rows_ = num_rows == 1 ? 1 : num_rows == 2 ? 2 : 4;
    padded_rows_ = round_up_to(num_rows, tile_rows_);
    find_visible();
    prepare();
    TokenBlock blocks[2];
    int current = 0;
    int first = keys_.begin / kBlockKeys * kBlockKeys;
    if (keys_.begin < keys_.end) locate(first, blocks[0]);
    for (; first < keys_.end; first += kBlockKeys, current ^= 1) {
      TokenBlock& next = blocks[current ^ 1];
      next.begin = next.end = 0;
      if (first + kBlockKeys < keys_.end) locate(first + kBlockKeys, next);
      if (mask(blocks[current])) take(blocks[current], next);
    }
    for (int head = 0; head < heads_; head++)
      for (int r = 0; r < rows_; r++) finish(head, r);
  }

 private:
  int token_of(int r) const { return (row_begin_ + r) / problem_.group; }
  int64_t query_head_of(int head, int r) const {
    return int64_t{work_.kv_head_begin + head} * problem_.group + (row_begin_ + r) % problem_.group;
  }
  int64_t position_of(int r) const { return token_of(r) + request_.kv_len - request_.query_len; }
  Query* query(int head) const {
    return reinterpret_cast<Query*>(queries_ + head * layout_.query_bytes);
  }
  float* out(int head) const { return reinterpret_cast<float*>(outs_ + head * layout_.out_bytes); }
  float* row_max(int head) const {
    return reinterpret_cast<float*>(states_ + head * layout_.state_bytes);
  }
  BlockScratch& scratch_of(int head) const {
    return *reinterpret_cast<BlockScratch*>(blocks_ + head * kBlockScratchBytes);
  }
  // kWidth partial sums of each row.
  float* row_sum(int head) const { return row_max(head) + kMaxDecodeRows; }

  void find_visible() {
    keys_ = {work_.key_end, work_.key_begin};
    for (int r = 0; r < rows_; r++) {
      const Range own = visible_range(problem_, request_, work_, token_of(r));
      ranges_[r] = own;
      if (own.begin >= own.end) continue;
      keys_ = {smaller(keys_.begin, own.begin), larger(keys_.end, own.end)};
    }
  }

  void prepare() {
    __builtin_memset(zeros_, 0, static_cast<size_t>(layout_.zeros_bytes));
    for (int head = 0; head < heads_; head++) {
      __builtin_memset(query(head), 0,
                       static_cast<size_t>(padded_rows_) * layout_.query_stride * sizeof(Query));
      __builtin_memset(out(head), 0,
                       static_cast<size_t>(padded_rows_) * layout_.out_stride * sizeof(float));
      for (int r = 0; r < rows_; r++)
        Rows::store_query(
            query(head) + r * layout_.query_stride,
            row_at<T>(problem_.q, (request_.query_start + token_of(r)) * problem_.q_token_stride +
                                      query_head_of(head, r) * problem_.q_head_stride),
            problem_.head_dim_qk);
      for (int r = 0; r < padded_rows_; r++) {
        row_max(head)[r] = kMinusInfinity;
        store(row_sum(head) + r * kWidth, zero());
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

  // `next` is what is prefetched meanwhile.
  void take(const TokenBlock& block, const TokenBlock& next) {
    switch (tile_rows_) {
      case 1:
        return take_tiled<1>(block, next);
      case 2:
        return take_tiled<2>(block, next);
      default:
        return take_tiled<4>(block, next);
    }
  }

  // K and V are taken in the order they lie in memory, so that what is prefetched next is a run,
  // and few enough bytes ahead to be still in L1 when its turn comes.
  template <int kRows>
  void take_tiled(const TokenBlock& block, const TokenBlock& next) {
    if (!tokens_first_) {  // a head's tokens are neighbours: head by head
      for (int head = 0; head < heads_; head++) {
        const bool last = head + 1 == heads_;
        const TokenBlock& then = last ? next : block;
        const int then_head = last ? 0 : head + 1;
        look_ahead(then.k, then.begin, then.end, k_offset(then_head), k_lines_);
        score<kRows>(block, head, first_visible_, last_visible_ + 1, scratch_of(0));
        look_ahead(then.v, then.begin, then.end, v_offset(then_head), v_lines_);
        soften(block, head, scratch_of(0));
        accumulate<kRows>(block, head, first_visible_, last_visible_ + 1, scratch_of(0));
      }
      return;
    }
    // A token's heads are neighbours: a few tokens of all heads, then the next few.
    constexpr int kTokens = larger(8, kWidth / kRows);
    const int end = last_visible_ + 1;
    for (int i = first_visible_; i < end; i += kTokens) {
      const int stop = smaller(i + kTokens, end);
      if (stop < end)
        look_ahead(block.k, stop, smaller(stop + kTokens, end), k_offset(0), heads_ * k_lines_);
      else
        look_ahead(block.v, first_visible_, smaller(first_visible_ + kTokens, end), v_offset(0),
                   heads_ * v_lines_);
      for (int head = 0; head < heads_; head++)
        score<kRows>(block, head, i, stop, scratch_of(head));
    }
    for (int head = 0; head < heads_; head++) soften(block, head, scratch_of(head));
    for (int i = first_visible_; i < end; i += kTokens) {
      const int stop = smaller(i + kTokens, end);
      if (stop < end)
        look_ahead(block.v, stop, smaller(stop + kTokens, end), v_offset(0), heads_ * v_lines_);
      else
        look_ahead(next.k, next.begin, smaller(next.begin + kTokens, next.end), k_offset(0),
                   heads_ * k_lines_);
      for (int head = 0; head < heads_; head++)
        accumulate<kRows>(block, head, i, stop, scratch_of(head));
    }
  }

  int64_t k_offset(int head) const { return (work_.kv_head_begin + head) * problem_.k_head_stride; }
  int64_t v_offset(int head) const { return (work_.kv_head_begin + head) * problem_.v_head_stride; }

  // Dot products of every row with the block's keys [begin, end).
  template <int kRows>
  void score(const TokenBlock& block, int head, int begin, int end, BlockScratch& scratch) {
    constexpr int kKeys = kWidth / kRows;
    for (int i = begin; i < end; i += kKeys) {
      const std::byte* keys[kKeys];
      for (int k = 0; k < kKeys; k++) keys[k] = block.k[smaller(i + k, end - 1)];
      for (int r = 0; r < padded_rows_; r += kRows) {
        alignas(64) float tile[kWidth];
        store(tile, Rows::template scores<kRows, kKeys>(query(head) + r * layout_.query_stride,
                                                        layout_.query_stride, keys, k_offset(head),
                                                        problem_.head_dim_qk));
        for (int row = 0; row < kRows; row++)
          __builtin_memcpy(scratch.scores[r + row] + i, tile + row * kKeys, kKeys * sizeof(float));
      }
      prefetch(kKeys * k_lines_);
    }
  }

  // Adds the block's values [begin, end), which begin at the first visible one or later.
  template <int kRows>
  void accumulate(const TokenBlock& block, int head, int begin, int end, BlockScratch& scratch) {
    const bool first = begin == first_visible_;
    if (all_alike_) {
      for (int r = 0; r < padded_rows_; r += kRows)
        Rows::template accumulate<kRows>(
            out(head) + r * layout_.out_stride, layout_.out_stride,
            (first ? scratch.decay : kNoDecay) + r, scratch.probabilities[r] + begin,
            2 * kBlockKeys, block.v + begin, end - begin, v_offset(head), problem_.head_dim_vo,
            zeros_, [this](int lines) { prefetch(lines); });
    } else if (first) {
      for (int r = 0; r < rows_; r++) accumulate_own(block, head, r, scratch);
    }
  }

  // A row's own keys of the whole block alone: what it doesn't see may hold NaN.
  void accumulate_own(const TokenBlock& block, int head, int r, const BlockScratch& scratch) {
    const std::byte* values[kBlockKeys];
    Probability own[kBlockKeys + 1];
    int count = 0;
    for (int i = first_visible_; i <= last_visible_; i++) {
      if (!(visible_[r] >> i & 1)) continue;
      values[count] = block.v[i];
      own[count++] = scratch.probabilities[r][i];
    }
    if (count == 0) return;
    own[count] = Probability{};
    Rows::template accumulate<1>(out(head) + r * layout_.out_stride, layout_.out_stride,
                                 scratch.decay + r, own, 0, values, count, v_offset(head),
                                 problem_.head_dim_vo, zeros_,
                                 [this](int lines) { prefetch(lines); });
  }

  // What prefetch() takes from now on: num_lines lines at `offset` of each of the tokens.
  void look_ahead(const std::byte* const* tokens, int begin, int end, int64_t offset,
                  int num_lines) {
    ahead_ = {tokens + begin, tokens + larger(begin, end), offset, num_lines, nullptr, 0};
  }

  // The next lines, a few at a time between the products, for a core can only wait for so many at
  // once.
  void prefetch(int num_lines) {
    while (num_lines > 0) {
      if (ahead_.lines_left == 0) {
        if (ahead_.token == ahead_.token_end) return;
        ahead_.line = *ahead_.token++ + ahead_.offset;
        ahead_.lines_left = ahead_.lines_per_token;
      }
      const int count = smaller(num_lines, ahead_.lines_left);
      for (int i = 0; i < count; i++) __builtin_prefetch(ahead_.line + i * kCacheLine, 0, 3);
      ahead_.line += count * kCacheLine;
      ahead_.lines_left -= count;
      num_lines -= count;
    }
  }

  // Scores to probabilities relative to the row's new maximum; what came before decays.
  void soften(const TokenBlock& block, int head, BlockScratch& scratch) {
    constexpr int kVecs = kBlockKeys / kWidth;
    const float scale = problem_.scale * (problem_.k_scale ? scale_of(problem_.k_scale, head) : 1);
    float* maxima = row_max(head);
    float* sums = row_sum(head);
    const Vec minus_infinity = set1(kMinusInfinity);
    for (int r = 0; r < padded_rows_; r++) {
      const uint32_t bits = visible_[r < rows_ ? r : 0];
      Vec x[kVecs];
      Vec top = minus_infinity;
      for (int i = 0; i < kVecs; i++) {
        x[i] = load(scratch.scores[r] + i * kWidth) * set1(scale);
        if (problem_.softcap != 0)
          x[i] = tanh(x[i] * set1(1 / problem_.softcap)) * set1(problem_.softcap);
        if (problem_.alibi_slopes && r < rows_) x[i] = x[i] - alibi(block, head, r, i);
        const Mask seen = lanes_of(bits >> (i * kWidth));
        x[i] = select(seen, x[i], minus_infinity);
        top = max(x[i], top);
      }
      const float old_max = maxima[r], block_max = reduce_max(top);
      const float new_max = block_max > old_max ? block_max : old_max;
      maxima[r] = new_max;
      // No key with a finite score yet: nothing to weigh, and nothing to decay.
      const float reference = new_max == kMinusInfinity ? 0 : new_max;
      Vec total = zero();
      for (int i = 0; i < kVecs; i++) {
        x[i] = exp2_accurate((x[i] - set1(reference)) * set1(kLog2E));
        total = total + x[i];
      }
      scratch.decay[r] = old_max == new_max
                             ? 1.0f
                             : first_lane(exp2_accurate(set1((old_max - reference) * kLog2E)));
      store(sums + r * kWidth, fma(load(sums + r * kWidth), set1(scratch.decay[r]), total));
      Rows::store_probabilities(scratch.probabilities[r], x, kVecs);
      scratch.probabilities[r][kBlockKeys] = Probability{};
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
  void finish(int head, int r) {
    float max = row_max(head)[r];
    float sum = reduce_add(load(row_sum(head) + r * kWidth));
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
    const float* row = out(head) + r * layout_.out_stride;
    if (work_.partial >= 0) {
      const int64_t index = work_.partial + int64_t{head} * (work_.row_end - work_.row_begin) +
                            row_begin_ + r - work_.row_begin;
      partials_.lse[index] = lse;
      write(partials_.out + index * partials_.out_stride, row, factor);
      return;
    }
    const int64_t token = request_.query_start + token_of(r);
    write(reinterpret_cast<T*>(problem_.out + token * problem_.out_token_stride +
                               query_head * problem_.out_head_stride),
          row, factor);
    if (problem_.lse)
      *reinterpret_cast<float*>(reinterpret_cast<std::byte*>(problem_.lse) +
                                query_head * problem_.lse_head_stride +
                                token * problem_.lse_token_stride) = lse;
  }

  template <typename Out>
  void write(Out* to, const float* row, float factor) const {
    constexpr int kVecs = Rows::kValueStep / kWidth;
    const int64_t dim = problem_.head_dim_vo;
    for (int64_t d = 0; d < dim; d += Rows::kValueStep) {
      Vec vecs[kVecs];
      Rows::load_output(row + d, vecs);
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
  const DecodeLayout layout_;
  const int heads_;
  std::byte *zeros_, *queries_, *outs_, *states_, *blocks_;

  int row_begin_, rows_, tile_rows_, padded_rows_;
  Range keys_;  // all that some row sees by position
  Range ranges_[kMaxDecodeRows];

  // Of the current block.
  uint32_t visible_[kMaxDecodeRows];
  bool all_alike_;  // every row sees exactly the keys [first_visible_, last_visible_]
  int first_visible_, last_visible_;

  bool tokens_first_;      // a token's heads lie side by side, not a head's tokens
  int k_lines_, v_lines_;  // of a row
  struct {
    const std::byte* const* token;
    const std::byte* const* token_end;
    int64_t offset;
    int lines_per_token;
    const std::byte* line;
    int lines_left;
  } ahead_ = {};
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
