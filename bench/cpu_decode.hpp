#include <optional>
// Decode attention on the CPU beside what reading the same pages costs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rapt/rapt.hpp"

namespace rapt::bench {

struct DecodeCase {
  int32_t num_query_heads = 32, num_kv_heads = 8, head_dim = 128;
  DType dtype = DType::kBFloat16;
  int32_t page_size = 16;  // 0 = one contiguous run for each request
  KvShape shape = KvShape::kPagesKv;
  KvLayout layout = KvLayout::kNHD;
  int32_t num_requests = 1;
  int32_t kv_len = 8192;
  int64_t pool_bytes = int64_t{320} << 20;  // rotated through; 0 = one set of caches, warm
  int32_t num_threads = 2;
  std::optional<CpuIsa> isa;
  std::string describe() const;
};

// Bytes per second; each round measures all of them, one after the other.
struct Spread {
  double low = 0, median = 0, high = 0;
};
struct DecodeFigures {
  Spread kernel;
  Spread page_walk;           // the same pages in the same order, read plainly
  Spread page_walk_prefetch;  // with lines prefetched in that order
  Spread sequential;          // as many bytes in one run for each thread
  double plan_us = 0;         // median
  int64_t bytes = 0;          // of K and V in a step
};

DecodeFigures measure(const DecodeCase& decode_case, double seconds);
Spread spread_of(std::vector<double> values);

}  // namespace rapt::bench
