// The decode kernel: few rows against many keys, bound by the memory that K and V come from.
//
// Traffic: a key of a KV head is read once, for all query heads of its group and all query tokens
// (rows); 2 * D * sizeof(T) bytes for 4 * D * rows flops. Keys are taken in blocks at absolute
// multiples of kBlockKeys, all KV heads of the work at each block, since a page's heads are
// neighbours in memory: 16 tokens of 8 heads of 128 bf16 are one run of 32 KiB. While a block is
// computed the next one is prefetched through the page table, in the order it lies in memory; the
// processor's own prefetcher stops at every page. Accumulators (heads * rows * D floats) stay in
// the innermost caches.
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
    return zeros_bytes + heads * (query_bytes + out_bytes + state_bytes);
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
    const int64_t k_bytes = problem.head_dim_qk * int64_t{sizeof(T)};
    const int64_t v_bytes = problem.head_dim_vo * int64_t{sizeof(T)};
    const bool neighbours = problem.k_head_stride == k_bytes && problem.v_head_stride == v_bytes;
    k_lines_ = static_cast<int>((k_bytes + kCacheLine - 1) / kCacheLine);
    run_heads_ = neighbours ? heads_ : 1;
    k_run_bytes_ = run_heads_ * k_bytes;
    v_run_bytes_ = run_heads_ * v_bytes;
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
      prefetch_from(next);
      const TokenBlock& block = blocks[current];
      if (!mask(block)) continue;
      for (int head = 0; head < heads_; head++) take(block, head);
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

  void take(const TokenBlock& block, int head) {
    switch (tile_rows_) {
      case 1:
        return take_tiled<1>(block, head);
      case 2:
        return take_tiled<2>(block, head);
      default:
        return take_tiled<4>(block, head);
    }
  }

  template <int kRows>
  void take_tiled(const TokenBlock& block, int head) {
    alignas(64) float scores[kMaxDecodeRows][kScoreStride];
    alignas(64) Probability probabilities[kMaxDecodeRows][2 * kBlockKeys];
    float decay[kMaxDecodeRows];
    score<kRows>(block, head, scores);
    soften(block, head, scores, probabilities, decay);
    const int64_t offset = int64_t{work_.kv_head_begin + head} * problem_.v_head_stride;
    if (all_alike_) {
      for (int r = 0; r < padded_rows_; r += kRows)
        Rows::template accumulate<kRows>(
            out(head) + r * layout_.out_stride, layout_.out_stride, decay + r,
            probabilities[r] + first_visible_, 2 * kBlockKeys, block.v + first_visible_,
            last_visible_ + 1 - first_visible_, offset, problem_.head_dim_vo, zeros_,
            [this](int lines) { prefetch(lines); });
      return;
    }
    for (int r = 0; r < rows_; r++) accumulate_own(block, head, r, probabilities[r], decay + r);
  }

  // A row's own keys alone: what it doesn't see may hold NaN.
  void accumulate_own(const TokenBlock& block, int head, int r, const Probability* probabilities,
                      const float* decay) {
    const std::byte* values[kBlockKeys];
    Probability own[kBlockKeys + 1];
    int count = 0;
    for (int i = first_visible_; i <= last_visible_; i++) {
      if (!(visible_[r] >> i & 1)) continue;
      values[count] = block.v[i];
      own[count++] = probabilities[i];
    }
    if (count == 0) return;
    own[count] = Probability{};
    const int64_t offset = int64_t{work_.kv_head_begin + head} * problem_.v_head_stride;
    Rows::template accumulate<1>(out(head) + r * layout_.out_stride, layout_.out_stride, decay, own,
                                 0, values, count, offset, problem_.head_dim_vo, zeros_,
                                 [this](int lines) { prefetch(lines); });
  }

  // Dot products of every row with the block's keys [first_visible_, last_visible_].
  template <int kRows>
  void score(const TokenBlock& block, int head, float (*scores)[kScoreStride]) {
    constexpr int kKeys = kWidth / kRows;
    const int64_t offset = int64_t{work_.kv_head_begin + head} * problem_.k_head_stride;
    for (int i = first_visible_; i <= last_visible_; i += kKeys) {
      const std::byte* keys[kKeys];
      for (int k = 0; k < kKeys; k++) keys[k] = block.k[smaller(i + k, last_visible_)];
      for (int r = 0; r < padded_rows_; r += kRows) {
        alignas(64) float tile[kWidth];
        store(tile, Rows::template scores<kRows, kKeys>(query(head) + r * layout_.query_stride,
                                                        layout_.query_stride, keys, offset,
                                                        problem_.head_dim_qk));
        for (int row = 0; row < kRows; row++)
          __builtin_memcpy(scores[r + row] + i, tile + row * kKeys, kKeys * sizeof(float));
      }
      prefetch(kKeys * k_lines_);
    }
  }

  // Begins the prefetch of what `block` points to.
  void prefetch_from(const TokenBlock& block) {
    next_ = &block;
    next_token_ = block.begin;
    next_head_ = 0;
    next_is_value_ = false;
    next_line_ = run_end_ = nullptr;
  }

  // The next lines of the next block, in the order they lie in memory: a few at a time between the
  // products, for a core can only wait for so many at once.
  void prefetch(int num_lines) {
    for (; num_lines > 0; num_lines--, next_line_ += kCacheLine) {
      if (next_line_ >= run_end_ && !next_run()) return;
      __builtin_prefetch(next_line_, 0, 2);
    }
  }

  // A run is a row, or a token's rows of all heads where they are neighbours; a K run is followed
  // by its V run.
  bool next_run() {
    if (next_token_ >= next_->end || next_head_ >= heads_) return false;
    const int64_t head = work_.kv_head_begin + next_head_;
    if (!next_is_value_) {
      next_line_ = next_->k[next_token_] + head * problem_.k_head_stride;
      run_end_ = next_line_ + k_run_bytes_;
      next_is_value_ = true;
      return true;
    }
    next_line_ = next_->v[next_token_] + head * problem_.v_head_stride;
    run_end_ = next_line_ + v_run_bytes_;
    next_is_value_ = false;
    if (++next_token_ == next_->end) {
      next_token_ = next_->begin;
      next_head_ += run_heads_;
    }
    return true;
  }

  // Scores to probabilities relative to the row's new maximum; what came before decays.
  void soften(const TokenBlock& block, int head, float (*scores)[kScoreStride],
              Probability (*probabilities)[2 * kBlockKeys], float* decay) {
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
        x[i] = load(scores[r] + i * kWidth) * set1(scale);
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
      decay[r] = old_max == new_max
                     ? 1.0f
                     : first_lane(exp2_accurate(set1((old_max - reference) * kLog2E)));
      store(sums + r * kWidth, fma(load(sums + r * kWidth), set1(decay[r]), total));
      Rows::store_probabilities(probabilities[r], x, kVecs);
      probabilities[r][kBlockKeys] = Probability{};
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
    const bool empty = max == kMinusInfinity;
    const int64_t query_head = query_head_of(head, r);
    float weight = 1;  // of the accumulated row before it is divided by the sum
    if (work_.partial < 0 && problem_.sinks) {
      const float sink = problem_.sinks[query_head];
      const float top = sink > max ? sink : max;
      if (top != kMinusInfinity) {
        weight = __builtin_expf(max - top);
        sum = sum * weight + __builtin_expf(sink - top);
        max = top;
      }
    }
    const float lse =
        max == kMinusInfinity
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
  std::byte *zeros_, *queries_, *outs_, *states_;

  int row_begin_, rows_, tile_rows_, padded_rows_;
  Range keys_;  // all that some row sees by position
  Range ranges_[kMaxDecodeRows];

  // Of the current block.
  uint32_t visible_[kMaxDecodeRows];
  bool all_alike_;  // every row sees exactly the keys [first_visible_, last_visible_]
  int first_visible_, last_visible_;

  // Prefetching.
  int run_heads_;
  int64_t k_run_bytes_, v_run_bytes_;
  int k_lines_;  // of a row
  const TokenBlock* next_ = nullptr;
  int next_token_ = 0, next_head_ = 0;
  bool next_is_value_ = false;
  const std::byte *next_line_ = nullptr, *run_end_ = nullptr;
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
