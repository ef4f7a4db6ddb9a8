// A shape's tensors in memory and its plans: what a benchmark runs, and which bytes that reads.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/memory.hpp"
#include "bench/memory_limits.hpp"
#include "bench/shapes.hpp"
#include "rapt/rapt.hpp"

namespace rapt::bench {

// Q, K and V are random, page ids shuffled. Page-table entries past a request's pages are no ids,
// and the pool has one page of NaN that no request has.
class Step {
 public:
  // `pool_bytes` of different caches, or as few as one step takes if that is more (0). A step
  // larger than the pool finds the pool's pages again and again.
  Step(Context& context, const Shape& shape, int64_t pool_bytes = 0);

  // Sets of caches of one step each, to be run in turn.
  int64_t num_sets() const { return static_cast<int64_t>(plans_.size()); }
  // The attention of one layer over the caches of a set.
  void run(int64_t set) const;
  // What a set's run has to read: K and V once, page after page in the order of its page table.
  const std::vector<Run>& reads(int64_t set) const { return reads_[static_cast<size_t>(set)]; }
  // As many bytes in one piece, of the same memory: at most all of it.
  Run sequential(int64_t set) const;
  int64_t bytes() const { return bytes_; }  // of K and V of a set

  const char* backend() const { return to_string(attention_.selection().backend); }
  std::string plan() const { return plans_.front().describe(); }

 private:
  void make_pages(int64_t pool_bytes);
  void make_ragged(int64_t pool_bytes);

  Shape shape_;
  Attention attention_;
  int64_t bytes_ = 0;
  Memory pool_, q_, out_, workspace_;
  TensorView q_view_, out_view_;
  std::vector<KvCacheView> caches_;  // of each set
  std::vector<int32_t> query_start_, kv_len_, kv_start_, page_table_;
  std::vector<std::vector<Run>> reads_;
  std::vector<Plan> plans_;
};

}  // namespace rapt::bench
