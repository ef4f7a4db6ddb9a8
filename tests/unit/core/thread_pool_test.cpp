#include "core/thread_pool.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace rapt {
namespace {

// CPU time of this process, all threads.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(ThreadPool, runs_every_task_exactly_once) {
  for (int32_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (int32_t num_tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int32_t>> counts(1000);
      pool.run(num_tasks, [&](int32_t i) { counts[i]++; });
      for (int32_t i = 0; i < 1000; i++) ASSERT_EQ(counts[i], i < num_tasks) << i;
    }
  }
}

TEST(ThreadPool, may_be_destroyed_unused) {
  for (int i = 0; i < 50; i++) ThreadPool pool(4);
}

TEST(ThreadPool, what_tasks_wrote_is_seen_after_run_and_by_the_next_loop) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 1);  // plain memory: a data race here is the sanitizer's to find
  for (int round = 0; round < 500; round++)
    pool.run(64, [&](int32_t i) { values[i] += values[i] % 7 + 1; });
  for (int64_t value : values) EXPECT_EQ(value, values[0]);
}

TEST(ThreadPool, concurrent_callers_take_turns) {
  ThreadPool pool(3);
  std::atomic<int32_t> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; c++)
    callers.emplace_back([&] {
      for (int round = 0; round < 100; round++) {
        int32_t sum = 0;
        std::atomic<int32_t> own{0};
        pool.run(10, [&](int32_t i) { own += i; });
        sum = own;
        total += sum;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 100 * 45);
}

TEST(ThreadPool, a_loop_inside_a_task_runs_on_that_thread) {
  ThreadPool pool(3), other(2);
  std::atomic<int32_t> count{0};
  pool.run(6, [&](int32_t) {
    const std::thread::id self = std::this_thread::get_id();
    pool.run(5, [&](int32_t) { count += std::this_thread::get_id() == self; });
    other.run(5, [&](int32_t) { pool.run(1, [&](int32_t) { count++; }); });
  });
  EXPECT_EQ(count, 6 * 5 + 6 * 5);
}

TEST(ThreadPool, all_threads_take_part) {
  ThreadPool pool(4);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::atomic<int32_t> arrived{0};
  // Each task waits until four are running, which takes four threads.
  pool.run(4, [&](int32_t) {
    arrived++;
    while (arrived < 4) std::this_thread::yield();
    std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ids.size(), 4u);
}

TEST(ThreadPool, waiting_threads_sleep) {
  ThreadPool pool(4);
  pool.run(4, [](int32_t) {});
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  // Three threads that spun all the while would have burnt as much as the cores give.
  EXPECT_LT(cpu_seconds() - before, 0.05);
  std::atomic<int32_t> count{0};
  pool.run(8, [&](int32_t) { count++; });  // and wake up again
  EXPECT_EQ(count, 8);
}

}  // namespace
}  // namespace rapt
