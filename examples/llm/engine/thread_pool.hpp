// The threads that the engine and Rapt share: the engine's loops run on it directly, Rapt's through
// ContextOptions::parallel_for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace llm {

// A decode step is some two hundred short loops, so idle threads spin for a while before they
// sleep. One thread at a time may call run().
class ThreadPool {
 public:
  // num_threads counts the caller of run(): a pool of 1 starts no thread. 0 = the cores this
  // process may use.
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // task(i) once for every i in [0, num_tasks), which must not throw; returns when all are done.
  void run(int32_t num_tasks, const std::function<void(int32_t)>& task);
  // task(begin, end) over parts of [0, count), each at least `grain` long but for the last. Several
  // parts for each thread even out what others take away from it.
  void run_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& task,
                  int32_t parts_per_thread = 4);
  int32_t num_threads() const { return static_cast<int32_t>(workers_.size()) + 1; }

 private:
  bool take_one();
  void work();
  void stop();

  // Tasks of the current loop not yet taken. A thread takes a task by counting it down; having one,
  // it may read task_, since the loop can't end before that task is done. A thread that wakes up
  // late finds the count at zero, or a task of the next loop, and nobody waits for it.
  std::atomic<int32_t> untaken_{0};
  std::atomic<int32_t> unfinished_{0};
  const std::function<void(int32_t)>* task_ = nullptr;
  std::atomic<uint32_t> wake_{0};  // changes when there is something to do, for those asleep
  std::atomic<int32_t> num_asleep_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace llm
