#include "core/thread_pool.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace rapt {

struct ThreadPool::Impl {
  std::mutex turn;  // held by the caller whose loop is running
  std::mutex mutex;
  std::condition_variable start, finished;
  std::vector<std::thread> workers;
  const std::function<void(int32_t)>* task = nullptr;
  std::atomic<int32_t> next{0};
  int32_t num_tasks = 0, busy = 0;
  uint64_t loop = 0;
  bool stopping = false;

  void drain() {
    for (int32_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) (*task)(i);
  }

  void work() {
    for (uint64_t seen = 0;;) {
      std::unique_lock lock(mutex);
      start.wait(lock, [&] { return stopping || loop != seen; });
      if (stopping) return;
      seen = loop;
      lock.unlock();
      drain();
      lock.lock();
      if (--busy == 0) finished.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int32_t num_threads) : impl_(std::make_unique<Impl>()) {
  for (int32_t i = 1; i < num_threads; i++) impl_->workers.emplace_back([this] { impl_->work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->start.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

void ThreadPool::run(int32_t num_tasks, const std::function<void(int32_t)>& task) {
  if (num_tasks <= 0) return;
  std::lock_guard turn(impl_->turn);
  {
    std::lock_guard lock(impl_->mutex);
    impl_->task = &task;
    impl_->num_tasks = num_tasks;
    impl_->next = 0;
    impl_->busy = static_cast<int32_t>(impl_->workers.size());
    impl_->loop++;
  }
  impl_->start.notify_all();
  impl_->drain();
  std::unique_lock lock(impl_->mutex);
  impl_->finished.wait(lock, [&] { return impl_->busy == 0; });
}

int32_t ThreadPool::num_threads() const {
  return static_cast<int32_t>(impl_->workers.size()) + 1;
}

}  // namespace rapt
