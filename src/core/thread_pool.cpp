#include "core/thread_pool.hpp"

#include <sched.h>

#include <algorithm>
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
constexpr int32_t kMaxThreads = 4096;

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

int32_t resolve_num_threads(int32_t num_threads) {
  check(num_threads >= 0 && num_threads <= kMaxThreads, "num_threads is ", num_threads,
        ": must be in [0, ", kMaxThreads, "], 0 for the usable cores");
  if (num_threads > 0) return num_threads;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return std::max(static_cast<int32_t>(std::thread::hardware_concurrency()), 1);
}

// A loop is published by a new even value of `loop` and closed by the odd one after it. A worker
// joins a loop while it is open, and run() returns when all who joined have left: one that wakes up
// late is not waited for.
struct ThreadPool::Impl {
  static constexpr uint64_t kWorker = uint64_t{1} << 32;  // one worker in `state`

  std::mutex turn;  // held by the caller whose loop is running
  std::vector<std::thread> workers;
  const std::function<void(int32_t)>* task = nullptr;
  int32_t num_tasks = 0;
  std::atomic<bool> stopping{false};
  alignas(64) std::atomic<int32_t> next{0};
  alignas(64) std::atomic<uint32_t> loop{0};   // what workers wait on: the even values alone
  alignas(64) std::atomic<uint64_t> state{1};  // workers inside, and the loop; begins closed
  alignas(64) std::atomic<uint32_t> left{0};   // changes when the last worker leaves a closed loop

  void drain() {
    inside_task = true;
    for (int32_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) (*task)(i);
    inside_task = false;
  }

  void publish(uint32_t id) {
    loop.store(id, std::memory_order_release);
    loop.notify_all();
  }

  void stop() {
    stopping.store(true, std::memory_order_relaxed);
    publish(loop.load(std::memory_order_relaxed) + 2);
    for (std::thread& worker : workers) worker.join();
  }

  bool join(uint32_t id) {
    uint64_t now = state.load(std::memory_order_relaxed);
    while (static_cast<uint32_t>(now) == id)
      if (state.compare_exchange_weak(now, now + kWorker, std::memory_order_acquire)) return true;
    return false;
  }

  void leave() {
    // Acquires too: the last one to leave passes on to run() what those before it have done.
    const uint64_t before = state.fetch_sub(kWorker, std::memory_order_acq_rel);
    if (before / kWorker != 1 || before % 2 == 0) return;
    left.fetch_add(1, std::memory_order_release);
    left.notify_one();
  }

  void work() {
    for (uint32_t seen = 0;;) {
      seen = wait_for_change(loop, seen);
      if (stopping.load(std::memory_order_relaxed)) return;
      if (!join(seen)) continue;
      drain();
      leave();
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
  const uint32_t id = pool.loop.load(std::memory_order_relaxed) + 2;
  const uint32_t left = pool.left.load(std::memory_order_relaxed);
  pool.state.store(id, std::memory_order_release);
  pool.publish(id);
  pool.drain();
  // Closed. Whoever is still inside changes `left` on leaving.
  if (pool.state.fetch_add(1, std::memory_order_acq_rel) >= Impl::kWorker)
    wait_for_change(pool.left, left);
}

int32_t ThreadPool::num_threads() const {
  return static_cast<int32_t>(impl_->workers.size()) + 1;
}

}  // namespace rapt
