// A fixed set of threads that run one parallel loop at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace rapt {

// What an option num_threads asks for: 0 is the cores this process may run on, which cgroups and
// taskset may have made fewer than the machine has. Throws Error(kInvalidArgument) for what is not
// in [0, 4096].
int32_t resolve_num_threads(int32_t num_threads);

class ThreadPool {
 public:
  // num_threads counts the caller of run(), so a pool of 1 starts no thread.
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();

  // task(i) once for every i in [0, num_tasks); returns when all are done. Concurrent callers take
  // turns. Called from inside a task, of this pool or another, it runs on the calling thread alone.
  // After a loop the threads wait for the next one, awake for a short while, then asleep.
  void run(int32_t num_tasks, const std::function<void(int32_t)>& task);
  int32_t num_threads() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rapt
