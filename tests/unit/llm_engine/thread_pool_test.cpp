#include "llm/engine/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace llm {
namespace {

TEST(EngineThreadPool, runs_every_task_once_in_loop_after_loop) {
  for (const int32_t threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (int loop = 0; loop < 2000; ++loop) {
      const int32_t num_tasks = loop % 17;
      std::vector<std::atomic<int>> runs(static_cast<size_t>(num_tasks));
      pool.run(num_tasks, [&](int32_t i) { ++runs[static_cast<size_t>(i)]; });
      for (const auto& count : runs) ASSERT_EQ(count, 1);
    }
  }
}

TEST(EngineThreadPool, wakes_threads_that_fell_asleep) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 5; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // longer than they spin
    std::atomic<int> waiting{0};
    // Each task waits for the others, so that all three threads must take part.
    pool.run(3, [&](int32_t) {
      ++waiting;
      while (waiting < 3) std::this_thread::yield();
    });
    EXPECT_EQ(waiting, 3);
  }
}

TEST(EngineThreadPool, ranges_cover_everything_once) {
  ThreadPool pool(2);
  for (const int64_t count : {0, 1, 7, 100, 1001}) {
    for (const int64_t grain : {1, 16, 5000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      pool.run_ranges(count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
      });
      for (const auto& n : runs) ASSERT_EQ(n, 1);
    }
  }
}

}  // namespace
}  // namespace llm
