// Planning again allocates nothing, once the plan's memory has grown.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "plan/cpu_plan.hpp"

namespace {
int64_t num_allocations = 0;
}

void* operator new(size_t bytes) {
  num_allocations++;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
// Not inlined: g++ would take free() for a mistake where it sees that new made the memory.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace rapt::cpu {
namespace {

TEST(CpuPlanAllocation, planning_again_allocates_nothing) {
  std::vector<int32_t> query_start{0}, kv_len;
  for (int32_t b = 0; b < 256; b++) {
    query_start.push_back(query_start.back() + (b % 64 == 63 ? 200 : 1));
    kv_len.push_back(500 + 37 * b);
  }
  Batch batch;
  batch.query_start = query_start;
  batch.kv_len = kv_len;
  AttentionSpec spec;
  spec.num_query_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim_qk = 128;
  WorkList list;
  plan_work(batch, spec, Machine{.num_threads = 8}, list);
  const int64_t before = num_allocations;
  std::vector<double> micros;
  micros.reserve(1000);
  for (int i = 0; i < 1000; i++) {
    kv_len[i % 256]--;
    const auto start = std::chrono::steady_clock::now();
    plan_work(batch, spec, Machine{.num_threads = 8}, list);
    micros.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  EXPECT_EQ(num_allocations - before, 1);  // that of `micros`
  std::nth_element(micros.begin(), micros.begin() + 500, micros.end());
  std::printf("256 requests: median %.1f us\n", micros[500]);
}

}  // namespace
}  // namespace rapt::cpu
