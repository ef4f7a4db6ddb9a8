// Threads for what benchmarks compare with: pinned, and timed from when all of them run.
#pragma once

#include <atomic>
#include <barrier>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace rapt::bench {

class Threads {
 public:
  // Thread i stays on the (i mod n)-th of the n processors this process may use. The caller of
  // run() is none of them, and keeps the processors it had.
  explicit Threads(int32_t num_threads);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // task(i) on thread i, for i in [0, size()). Returns seconds from the first start to the last
  // end; no thread starts before all are awake.
  double run(const std::function<void(int32_t)>& task);
  int32_t size() const { return static_cast<int32_t>(workers_.size()); }

 private:
  void work(int32_t thread);
  void stop();

  std::barrier<> start_, done_;
  std::atomic<int32_t> awake_{0};
  const std::function<void(int32_t)>* task_ = nullptr;
  std::vector<double> begin_, end_;
  std::vector<std::thread> workers_;
};

double seconds_now();

}  // namespace rapt::bench
