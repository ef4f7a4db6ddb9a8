// Speed of the prefill kernels alone: one request, work shared equally among threads.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/cpu/kernels.hpp"

namespace rapt::bench {

struct PrefillShape {
  DType dtype = DType::kBFloat16;
  int32_t num_query_heads = 32, num_kv_heads = 8, head_dim = 128;
  int32_t query_len = 512, kv_len = 2048, page_size = 16;
  bool causal = false;

  // 4 * head_dim for every (query head, query, key) of the full rectangle, or of what is visible.
  double flops() const;
};

// Random tensors in shuffled pages, and the threads' scratch.
class PrefillBench {
 public:
  PrefillBench(const PrefillShape& shape, const cpu::Kernels& kernels, int num_threads);
  ~PrefillBench();
  PrefillBench(PrefillBench&&) noexcept;
  // Seconds of one pass over all heads.
  double run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rapt::bench
