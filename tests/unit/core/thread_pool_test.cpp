// The pool runs every task once and waits for the last.
#include "core/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace rapt {
namespace {

TEST(ThreadPool, runs_every_task_once) {
  for (int32_t num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (int32_t num_tasks : {0, 1, 2, 7, 100}) {
      std::vector<std::atomic<int>> runs(num_tasks);
      pool.run(num_tasks, [&](int32_t i) { runs[i]++; });
      for (int32_t i = 0; i < num_tasks; i++) EXPECT_EQ(runs[i], 1);
    }
    pool.run(-1, [](int32_t) { ADD_FAILURE(); });
  }
}

// Plain, unsynchronised results: what a task wrote is seen after run(), loop after loop.
TEST(ThreadPool, results_are_visible_when_it_returns) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 0);
  for (int loop = 1; loop <= 2000; loop++) {
    pool.run(64, [&](int32_t i) { values[i] += i; });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), loop * 63 * 64 / 2);
  }
}

TEST(ThreadPool, callers_take_turns) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; c++)
    callers.emplace_back([&] {
      for (int loop = 0; loop < 100; loop++) pool.run(10, [&](int32_t i) { sum += i; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 100 * 45);
}

TEST(ThreadPool, may_be_destroyed_unused) {
  for (int i = 0; i < 50; i++) ThreadPool pool(4);
}

}  // namespace
}  // namespace rapt
