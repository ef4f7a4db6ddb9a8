// A fixed set of threads that run one parallel loop at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace rapt {

class ThreadPool {
 public:
  // num_threads counts the caller of run(), so a pool of 1 starts no thread.
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();

  // task(i) once for every i in [0, num_tasks); returns when all are done. Concurrent callers take
  // turns.
  void run(int32_t num_tasks, const std::function<void(int32_t)>& task);
  int32_t num_threads() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rapt
