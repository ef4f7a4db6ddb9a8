#include "core/thread_pool.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/check.hpp"

namespace rapt {
namespace {

// How long a waiting thread stays awake. The attention of one layer follows that of the layer
// before within tens of microseconds while a model runs, and waking a sleeper costs about as much.
constexpr std::chrono::microseconds kSpin{50};
constexpr int kPausesPerLook = 32;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until value is no longer `old`, and returns what it is.
uint32_t wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; i++) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  for (;;) {
    value.wait(old, std::memory_order_acquire);
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
}

// This thread is running a task of some pool, whose turn may be the one it would wait for.
thread_local bool inside_task = false;

}  // namespace

// A loop is published by a new value of `loop`; every worker takes part in every loop and counts
// itself out of `busy`, so nothing of a loop is touched once run() has returned.
struct ThreadPool::Impl {
  std::mutex turn;  // held by the caller whose loop is running
  std::vector<std::thread> workers;
  const std::function<void(int32_t)>* task = nullptr;
  int32_t num_tasks = 0;
  bool stopping = false;
  alignas(64) std::atomic<int32_t> next{0};
  alignas(64) std::atomic<uint32_t> loop{0};
  alignas(64) std::atomic<uint32_t> busy{0};

  void drain() {
    inside_task = true;
    for (int32_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) (*task)(i);
    inside_task = false;
  }

  void publish() {
    loop.fetch_add(1, std::memory_order_release);
    loop.notify_all();
  }

  void stop() {
    stopping = true;
    publish();
    for (std::thread& worker : workers) worker.join();
  }

  void work() {
    for (uint32_t seen = 0;;) {
      seen = wait_for_change(loop, seen);
      if (stopping) return;
      drain();
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) busy.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int32_t num_threads) : impl_(std::make_unique<Impl>()) {
  Impl& pool = *impl_;
  try {
    for (int32_t i = 1; i < num_threads; i++) pool.workers.emplace_back([&pool] { pool.work(); });
  } catch (const std::exception& error) {
    // A thread that is still running when it is destroyed ends the process.
    const size_t started = pool.workers.size() + 1;
    pool.stop();
    fail(ErrorCode::kOutOfMemory, "only ", started, " of ", num_threads,
         " threads could be started (", error.what(), "): ask for fewer");
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop();
}

void ThreadPool::run(int32_t num_tasks, const std::function<void(int32_t)>& task) {
  if (num_tasks <= 0) return;
  Impl& pool = *impl_;
  if (num_tasks == 1 || inside_task || pool.workers.empty()) {
    for (int32_t i = 0; i < num_tasks; i++) task(i);
    return;
  }
  std::lock_guard turn(pool.turn);
  pool.task = &task;
  pool.num_tasks = num_tasks;
  pool.next.store(0, std::memory_order_relaxed);
  pool.busy.store(static_cast<uint32_t>(pool.workers.size()), std::memory_order_relaxed);
  pool.publish();
  pool.drain();
  for (uint32_t busy; (busy = pool.busy.load(std::memory_order_acquire)) != 0;)
    wait_for_change(pool.busy, busy);
}

int32_t ThreadPool::num_threads() const {
  return static_cast<int32_t>(impl_->workers.size()) + 1;
}

}  // namespace rapt
