// The keys of a decode work, block by block: where their rows lie, and what to ask memory for next.
#pragma once

#include "backends/cpu/rows-inl.hpp"

namespace rapt::cpu {
namespace {

constexpr int kValueTokens = 8;  // whose values are added in one go where heads are neighbours

// A block's tokens; addresses are of head 0, all inside the work.
struct TokenBlock {
  // Tokens [begin, end) that lie in one page, or in none.
  struct Run {
    int begin, end;
    const std::byte *k, *v;  // of the first
  };
  static constexpr int kGrain = 8;  // addresses are written so many at a time

  int first = 0;  // key at position 0: a multiple of kBlockKeys
  int begin = 0, end = 0;
  int num_runs = 0;
  Run runs[kBlockKeys];
  const std::byte* k[kBlockKeys + kGrain];
  const std::byte* v[kBlockKeys + kGrain];
};

// A block is read in one of two orders. Where a token's heads lie side by side, the keys of all
// heads, a few tokens at a time, then the values, kValueTokens tokens at a time; elsewhere head by
// head, its keys, then its values. Either way it is asked for in the order of memory.
template <typename Pieces>
class KeyBlocks {
 public:
  // Rows see keys of `keys` alone. `storage` is that of Pieces.
  KeyBlocks(const Problem& problem, const Request& request, const Work& work, Range keys,
            int64_t element_bytes, std::byte* storage)
      : problem_(problem),
        request_(request),
        first_head_(work.kv_head_begin),
        heads_(work.kv_head_end - work.kv_head_begin),
        keys_(keys),
        pieces_(storage) {
    const int64_t k_bytes = problem.head_dim_qk * element_bytes;
    const int64_t v_bytes = problem.head_dim_vo * element_bytes;
    tokens_first_ = heads_ > 1 && problem.k_head_stride == k_bytes &&
                    problem.v_head_stride == v_bytes && problem.k_token_stride > k_bytes;
    k_rows_ = {tokens_first_ ? heads_ * k_bytes : k_bytes, problem.k_token_stride};
    v_rows_ = {tokens_first_ ? heads_ * v_bytes : v_bytes, problem.v_token_stride};
    locate(keys.begin / kBlockKeys * kBlockKeys);
    advance();
  }

  bool done() const { return block().begin >= block().end; }
  const TokenBlock& block() const { return blocks_[current_]; }
  void advance() {
    current_ ^= 1;
    if (done()) return;
    locate(block().first + kBlockKeys);
    k_pieces_ = v_pieces_ = 0;
    for (int i = 0; i < block().num_runs; i++) {
      const TokenBlock::Run& run = block().runs[i];
      k_pieces_ += k_rows_.pieces(run.end - run.begin);
      v_pieces_ += v_rows_.pieces(run.end - run.begin);
    }
    pieces_.begin_block((k_pieces_ + v_pieces_) * (tokens_first_ ? 1 : heads_));
    list(block());
    list(next());
    pieces_.end_block();
  }

  bool tokens_first() const { return tokens_first_; }
  int64_t k_offset(int head) const { return (first_head_ + head) * problem_.k_head_stride; }
  int64_t v_offset(int head) const { return (first_head_ + head) * problem_.v_head_stride; }

  typename Pieces::Ahead& ahead() { return ahead_; }
  // The keys, or the values, of a head are read now; head 0 stands for all of them where tokens
  // come first.
  void seek_keys(int head) {
    ahead_ = pieces_.from(head * (k_pieces_ + v_pieces_), run_bytes(k_rows_));
  }
  void seek_values(int head) {
    ahead_ = pieces_.from(head * (k_pieces_ + v_pieces_) + k_pieces_, run_bytes(v_rows_));
  }

 private:
  // What is read of a token in one go.
  struct RowSpan {
    int64_t bytes, token_stride;
    bool dense() const { return bytes == token_stride; }
    int64_t run_bytes(int tokens) const { return dense() ? tokens * bytes : bytes; }
    int64_t pieces(int tokens) const {
      return dense() ? Pieces::pieces_of(tokens * bytes) : tokens * Pieces::pieces_of(bytes);
    }
  };

  // Of the block's first run: others are as long, or longer.
  int64_t run_bytes(const RowSpan& rows) const {
    const TokenBlock::Run& run = block().runs[0];
    return rows.run_bytes(run.end - run.begin);
  }

  TokenBlock& next() { return blocks_[current_ ^ 1]; }
  void list(const TokenBlock& block) {
    for (int head = 0; head < (tokens_first_ ? 1 : heads_) && !pieces_.full(); head++) {
      for (int i = 0; i < block.num_runs; i++)
        list(block.runs[i].k + k_offset(head), block.runs[i], k_rows_);
      for (int i = 0; i < block.num_runs; i++)
        list(block.runs[i].v + v_offset(head), block.runs[i], v_rows_);
    }
  }
  void list(const std::byte* first, const TokenBlock::Run& run, const RowSpan& rows) {
    const int tokens = run.end - run.begin;
    if (rows.dense()) return pieces_.add(first, tokens * rows.bytes);
    for (int i = 0; i < tokens; i++) pieces_.add(first + i * rows.token_stride, rows.bytes);
  }

  // Puts the keys that some row may see of block `first` into next(); none if it lies behind the
  // last.
  void locate(int first) {
    TokenBlock& block = next();
    block.first = first;
    block.begin = larger(keys_.begin - first, 0);
    block.end = smaller(keys_.end - first, kBlockKeys);
    block.num_runs = 0;
    if (problem_.page_size == 0) {
      const int64_t row = request_.kv_start + first + block.begin;
      if (block.begin < block.end)
        add_run(block, block.begin, block.end, problem_.k + row * problem_.k_token_stride,
                problem_.v + row * problem_.v_token_stride);
      return;
    }
    const int64_t page_size = problem_.page_size;
    int64_t page = (first + block.begin) / page_size, slot = (first + block.begin) % page_size;
    for (int i = block.begin; i < block.end; page++, slot = 0) {
      const int64_t id = request_.pages[page];
      const int end = static_cast<int>(smaller<int64_t>(block.end, i + page_size - slot));
      add_run(block, i, end,
              problem_.k + id * problem_.k_page_stride + slot * problem_.k_token_stride,
              problem_.v + id * problem_.v_page_stride + slot * problem_.v_token_stride);
      i = end;
    }
  }
  void add_run(TokenBlock& block, int begin, int end, const std::byte* k,
               const std::byte* v) const {
    block.runs[block.num_runs++] = {begin, end, k, v};
    for (int i = begin; i < end; i += TokenBlock::kGrain)
      for (int j = 0; j < TokenBlock::kGrain; j++) {
        block.k[i + j] = k + (i + j - begin) * problem_.k_token_stride;
        block.v[i + j] = v + (i + j - begin) * problem_.v_token_stride;
      }
  }

  const Problem& problem_;
  const Request& request_;
  const int first_head_, heads_;
  const Range keys_;
  bool tokens_first_;
  RowSpan k_rows_, v_rows_;
  int64_t k_pieces_, v_pieces_;  // of the current block; of one head unless tokens come first
  Pieces pieces_;
  typename Pieces::Ahead ahead_;

  TokenBlock blocks_[2];
  int current_ = 1;
};

}  // namespace
}  // namespace rapt::cpu
