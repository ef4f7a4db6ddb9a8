// Threads for what a benchmark compares with: they start together and are waited for.
#pragma once

#include <barrier>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace rapt::bench {

class Threads {
 public:
  // num_threads counts the caller of run().
  explicit Threads(int32_t num_threads) : start_(num_threads), done_(num_threads) {
    for (int32_t i = 1; i < num_threads; i++)
      workers_.emplace_back([this, i] {
        for (;;) {
          start_.arrive_and_wait();
          if (task_ == nullptr) return;
          (*task_)(i);
          done_.arrive_and_wait();
        }
      });
  }
  ~Threads() {
    task_ = nullptr;
    start_.arrive_and_wait();
    for (std::thread& worker : workers_) worker.join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // task(i) on thread i, for i in [0, size()).
  void run(const std::function<void(int32_t)>& task) {
    task_ = &task;
    start_.arrive_and_wait();
    task(0);
    done_.arrive_and_wait();
  }
  int32_t size() const { return static_cast<int32_t>(workers_.size()) + 1; }

 private:
  std::barrier<> start_, done_;
  const std::function<void(int32_t)>* task_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace rapt::bench
