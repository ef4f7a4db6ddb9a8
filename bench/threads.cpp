#include "bench/threads.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>

#if defined(__linux__)
#include <sched.h>
#endif

#include "rapt/error.hpp"

namespace rapt::bench {
namespace {

#if defined(__linux__)
std::vector<int> usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  return processors;
}

void stay_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);  // if refused the thread runs unpinned
}
#else
std::vector<int> usable_processors() {
  return {};
}
void stay_on(int) {}
#endif

}  // namespace

Threads::Threads(int32_t num_threads)
    : start_(num_threads + 1), done_(num_threads + 1), begin_(num_threads), end_(num_threads) {
  const std::vector<int> processors = usable_processors();
  try {
    for (int32_t i = 0; i < num_threads; i++)
      workers_.emplace_back([this, i, processors] {
        if (!processors.empty()) stay_on(processors[i % processors.size()]);
        work(i);
      });
  } catch (const std::exception& error) {
    // A thread that is still running when it is destroyed ends the process.
    const int32_t started = size();
    for (int32_t i = started; i < num_threads; i++) start_.arrive_and_drop();
    stop();
    throw Error(ErrorCode::kOutOfMemory,
                "only " + std::to_string(started) + " of " + std::to_string(num_threads) +
                    " threads could be started (" + error.what() + "): ask for fewer");
  }
}

Threads::~Threads() {
  stop();
}

void Threads::stop() {
  task_ = nullptr;
  start_.arrive_and_wait();
  for (std::thread& worker : workers_) worker.join();
}

void Threads::work(int32_t thread) {
  for (;;) {
    start_.arrive_and_wait();
    if (task_ == nullptr) return;
    awake_.fetch_add(1);
    while (awake_.load() < size()) std::this_thread::yield();
    begin_[thread] = seconds_now();
    (*task_)(thread);
    end_[thread] = seconds_now();
    done_.arrive_and_wait();
  }
}

double Threads::run(const std::function<void(int32_t)>& task) {
  task_ = &task;
  awake_ = 0;
  start_.arrive_and_wait();
  done_.arrive_and_wait();
  return *std::max_element(end_.begin(), end_.end()) -
         *std::min_element(begin_.begin(), begin_.end());
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace rapt::bench
