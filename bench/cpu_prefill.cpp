#include "bench/cpu_prefill.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "core/float16.hpp"

namespace rapt::bench {

double PrefillShape::flops() const {
  const double all = static_cast<double>(query_len) * kv_len;
  const double hidden = causal ? 0.5 * query_len * (query_len - 1.0) : 0;
  return 4.0 * head_dim * num_query_heads * (all - hidden);
}

struct PrefillBench::Impl {
  PrefillShape shape;
  const cpu::Kernels& kernels;
  int num_threads;
  std::vector<std::byte> q, k, v, out;
  std::vector<int32_t> pages;
  std::vector<std::unique_ptr<std::byte[]>> scratch;
  cpu::Problem problem{};
  cpu::Request request{};
  std::vector<cpu::Work> works;

  void run_thread(int thread, std::atomic<size_t>& next) {
    void* aligned = scratch[thread].get();
    size_t space = kernels.scratch_bytes(problem) + 64;
    std::align(64, space - 64, aligned, space);
    for (size_t i = next++; i < works.size(); i = next++)
      kernels.prefill(problem, request, works[i], {}, static_cast<std::byte*>(aligned));
  }
};

PrefillBench::PrefillBench(const PrefillShape& shape, const cpu::Kernels& kernels, int num_threads)
    : impl_(new Impl{shape, kernels, num_threads, {}, {}, {}, {}, {}, {}, {}, {}, {}}) {
  Impl& b = *impl_;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1);
  const int64_t element = static_cast<int64_t>(size_of(shape.dtype));
  const auto fill = [&](std::vector<std::byte>& tensor, int64_t count) {
    tensor.resize(count * element);
    std::vector<float> cycle(65537);  // a prime: no two rows alike
    for (float& x : cycle) x = normal(random);
    for (int64_t i = 0; i < count; i++) {
      const float x = cycle[i % cycle.size()];
      const uint16_t half =
          shape.dtype == DType::kFloat16 ? float_to_float16(x) : float_to_bfloat16(x);
      std::memcpy(tensor.data() + i * element, element == 4 ? static_cast<const void*>(&x) : &half,
                  element);
    }
  };
  const int64_t num_pages = (shape.kv_len + shape.page_size - 1) / shape.page_size;
  const int64_t row = shape.head_dim * element;
  fill(b.q, int64_t{shape.query_len} * shape.num_query_heads * shape.head_dim);
  fill(b.out, int64_t{shape.query_len} * shape.num_query_heads * shape.head_dim);
  fill(b.k, num_pages * shape.page_size * shape.num_kv_heads * shape.head_dim);
  fill(b.v, num_pages * shape.page_size * shape.num_kv_heads * shape.head_dim);
  for (int32_t i = 0; i < num_pages; i++) b.pages.push_back(i);
  std::shuffle(b.pages.begin(), b.pages.end(), random);

  cpu::Problem& p = b.problem;
  p.q = b.q.data(), p.k = b.k.data(), p.v = b.v.data(), p.out = b.out.data();
  p.q_head_stride = p.out_head_stride = p.k_head_stride = p.v_head_stride = row;
  p.q_token_stride = p.out_token_stride = shape.num_query_heads * row;
  p.k_token_stride = p.v_token_stride = shape.num_kv_heads * row;
  p.k_page_stride = p.v_page_stride = shape.page_size * p.k_token_stride;
  p.dtype = shape.dtype;
  p.num_query_heads = shape.num_query_heads, p.num_kv_heads = shape.num_kv_heads;
  p.group = shape.num_query_heads / shape.num_kv_heads;
  p.head_dim_qk = p.head_dim_vo = shape.head_dim;
  p.page_size = shape.page_size;
  p.scale = 1 / __builtin_sqrtf(static_cast<float>(shape.head_dim));
  p.window_left = -1, p.window_right = shape.causal ? 0 : -1;
  b.request = {.query_start = 0,
               .query_len = shape.query_len,
               .kv_len = shape.kv_len,
               .pages = b.pages.data(),
               .kv_start = 0,
               .mask_bit = 0};
  for (int32_t h = 0; h < shape.num_kv_heads; h++)
    b.works.push_back({.request = 0,
                       .kv_head_begin = h,
                       .kv_head_end = h + 1,
                       .row_begin = 0,
                       .row_end = shape.query_len * p.group,
                       .key_begin = 0,
                       .key_end = shape.kv_len,
                       .phase = cpu::Phase::kPrefill,
                       .partial = -1});
  for (int i = 0; i < num_threads; i++) {
    const size_t bytes = kernels.scratch_bytes(p) + 64;
    b.scratch.emplace_back(new std::byte[bytes]);
    std::memset(b.scratch.back().get(), 0, bytes);
  }
}

PrefillBench::~PrefillBench() = default;
PrefillBench::PrefillBench(PrefillBench&&) noexcept = default;

double PrefillBench::run() {
  std::atomic<size_t> next = 0;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 1; i < impl_->num_threads; i++)
    threads.emplace_back([&, i] { impl_->run_thread(i, next); });
  impl_->run_thread(0, next);
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace rapt::bench
