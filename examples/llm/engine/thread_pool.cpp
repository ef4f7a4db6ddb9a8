#include "llm/engine/thread_pool.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "llm/model/failure.hpp"

namespace llm {
namespace {

// Longer than the gaps between the loops of a step, shorter than anybody would notice in the load.
constexpr std::chrono::microseconds kSpin{200};

int32_t usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int32_t num_threads) {
  if (num_threads == 0) num_threads = usable_cores();
  try {
    for (int32_t i = 1; i < num_threads; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::exception& error) {
    // A thread that is still running when it is destroyed ends the process.
    const size_t started = workers_.size() + 1;
    stop();
    fail(rapt::ErrorCode::kOutOfMemory, "only ", started, " of ", num_threads,
         " threads could be started (", error.what(), "): ask for fewer");
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stopping_ = true;
  ++wake_;
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::take_one() {
  int32_t left = untaken_.load(std::memory_order_acquire);
  do {
    if (left == 0) return false;
  } while (!untaken_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel,
                                           std::memory_order_acquire));
  // Tasks are counted down, so this is task number left - 1; their order is nobody's business.
  (*task_)(left - 1);
  unfinished_.fetch_sub(1, std::memory_order_release);
  return true;
}

void ThreadPool::work() {
  while (!stopping_) {
    const uint32_t seen = wake_.load();
    const auto give_up = std::chrono::steady_clock::now() + kSpin;
    bool worked = false;
    for (int spins = 0; !stopping_; ++spins) {
      if (take_one()) {
        worked = true;
        break;
      }
      pause_cpu();
      if (spins % 64 == 63 && std::chrono::steady_clock::now() > give_up) break;
    }
    if (worked || stopping_) continue;
    ++num_asleep_;
    // A loop that began after `seen` was read has changed wake_, so this returns at once.
    wake_.wait(seen);
    --num_asleep_;
  }
}

void ThreadPool::run(int32_t num_tasks, const std::function<void(int32_t)>& task) {
  if (num_tasks <= 0) return;
  if (workers_.empty() || num_tasks == 1) {
    for (int32_t i = 0; i < num_tasks; ++i) task(i);
    return;
  }
  task_ = &task;
  unfinished_.store(num_tasks, std::memory_order_relaxed);
  untaken_.store(num_tasks, std::memory_order_release);
  ++wake_;
  if (num_asleep_ > 0) wake_.notify_all();
  while (take_one()) {
  }
  for (int spins = 0; unfinished_.load(std::memory_order_acquire) != 0; ++spins) {
    pause_cpu();
    if (spins % 1024 == 1023) std::this_thread::yield();
  }
}

void ThreadPool::run_ranges(int64_t count, int64_t grain,
                            const std::function<void(int64_t, int64_t)>& task,
                            int32_t parts_per_thread) {
  const int64_t most = int64_t{parts_per_thread} * num_threads();
  const int64_t parts = std::clamp<int64_t>(count / std::max<int64_t>(grain, 1), 1, most);
  run(static_cast<int32_t>(parts),
      [&](int32_t part) { task(count * part / parts, count * (part + 1) / parts); });
}

}  // namespace llm
