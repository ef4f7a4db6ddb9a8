// The keys of a decode work, block by block: where their rows lie, and what to ask memory for next.
#pragma once

#include "backends/cpu/rows-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr int kValueTokens = 8;  // whose values are added in one go where heads are neighbours

// Addresses of a block's tokens, head 0; all inside the work.
struct TokenBlock {
  int first = 0;  // key at position 0: a multiple of kBlockKeys
  int begin = 0, end = 0;
  const std::byte* k[kBlockKeys];
  const std::byte* v[kBlockKeys];
};

// A block is read in one of two orders. Where a token's heads lie side by side, kKeyTokens keys of
// all heads, then the next, and after the keys the values, kValueTokens tokens at a time; elsewhere
// head by head, its keys, then its values. The next block is listed for LookAhead in the same order
// and meanwhile, portion by portion: while all of it was listed in one go, memory would rest.
template <int kKeyTokens>
class KeyBlocks {
 public:
  // Rows see keys of `keys` alone. `storage` is LookAhead's.
  KeyBlocks(const Problem& problem, const Request& request, const Work& work, Range keys,
            int64_t element_bytes, std::byte* storage)
      : problem_(problem),
        request_(request),
        first_head_(work.kv_head_begin),
        heads_(work.kv_head_end - work.kv_head_begin),
        keys_(keys),
        ahead_(storage) {
    const int64_t k_bytes = problem.head_dim_qk * element_bytes;
    const int64_t v_bytes = problem.head_dim_vo * element_bytes;
    tokens_first_ = heads_ > 1 && problem.k_head_stride == k_bytes &&
                    problem.v_head_stride == v_bytes && problem.k_token_stride > k_bytes;
    k_run_ = run_of(k_bytes, problem.k_token_stride);
    v_run_ = run_of(v_bytes, problem.v_token_stride);
    locate(keys.begin / kBlockKeys * kBlockKeys);
    advance();
  }

  bool done() const { return block().begin >= block().end; }
  const TokenBlock& block() const { return blocks_[current_]; }
  void advance() {
    list_rest();
    current_ ^= 1;
    if (done()) return;
    ahead_.advance();
    locate(block().first + kBlockKeys);
  }

  bool tokens_first() const { return tokens_first_; }
  int64_t k_offset(int head) const { return (first_head_ + head) * problem_.k_head_stride; }
  int64_t v_offset(int head) const { return (first_head_ + head) * problem_.v_head_stride; }

  LookAhead& ahead() { return ahead_; }
  // Keys, or values, of a head from a token on are read now; head 0 stands for all of them where
  // tokens come first.
  void seek_keys(int head, int token) {
    ahead_.seek(head * pieces() + k_run_.pieces(token - block().begin));
  }
  void seek_values(int head, int token) {
    ahead_.seek(head * pieces() + k_pieces() + v_run_.pieces(token - block().begin));
  }

  // Lists the next of the next block: a head's keys and values, or of all heads those of as many
  // tokens, all keys before the first value.
  void list_head() {
    list<1>(next().k, next().begin, next().end, k_offset(listed_), k_run_);
    list<1>(next().v, next().begin, next().end, v_offset(listed_++), v_run_);
  }
  void list_keys(int num_tokens) {
    const int end = smaller(listed_ + num_tokens, next().end);
    list<kKeyTokens>(next().k, listed_, end, k_offset(0), k_run_);
    listed_ = end;
  }
  void list_values(int num_tokens) {
    const int end = smaller(values_listed_ + num_tokens, next().end);
    list<kValueTokens>(next().v, values_listed_, end, v_offset(0), v_run_);
    values_listed_ = end;
  }

 private:
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

  TokenBlock& next() { return blocks_[current_ ^ 1]; }
  int64_t k_pieces() const { return k_run_.pieces(block().end - block().begin); }
  int64_t pieces() const { return k_pieces() + v_run_.pieces(block().end - block().begin); }

  void list_rest() {
    if (tokens_first_) {
      list_keys(kBlockKeys);
      list_values(kBlockKeys);
    } else {
      while (next().begin < next().end && listed_ < heads_) list_head();
    }
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

  // Puts the addresses of the keys that some row may see of block `first` into next(); none if it
  // lies behind the last.
  void locate(int first) {
    TokenBlock& block = next();
    block.first = first;
    block.begin = larger(keys_.begin - first, 0);
    block.end = smaller(keys_.end - first, kBlockKeys);
    listed_ = tokens_first_ ? block.begin : 0;
    values_listed_ = block.begin;
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

  const Problem& problem_;
  const Request& request_;
  const int first_head_, heads_;
  const Range keys_;
  bool tokens_first_;
  Run k_run_, v_run_;
  LookAhead ahead_;

  TokenBlock blocks_[2];
  int current_ = 1;
  int listed_, values_listed_;  // of the next block: heads, or tokens whose keys and values are
};

}  // namespace
}  // namespace rapt::cpu
