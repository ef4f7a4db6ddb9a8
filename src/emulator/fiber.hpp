// A fibre: a stack of its own and where it goes on. Switching costs a handful of instructions on
// x86-64, a system call or two elsewhere.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "emulator/mapping.hpp"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace rapt::emulator {

class Fiber {
 public:
  // Will run entry(), which never returns, on the stack [bottom, top). `bottom` is the end of a
  // page, `top` a multiple of 16.
  void start(char* bottom, char* top, void (*entry)());
  // Suspends this fibre, which is the running one, and resumes the other.
  void switch_to(Fiber& other);

 private:
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

// The stacks of a block's threads. An overflow of one faults: each has an unreadable page below it.
class Stacks {
 public:
  Stacks(int count, size_t bytes);

  int count() const { return count_; }
  size_t bytes() const { return bytes_ - Mapping::kPageBytes; }  // of each, whole pages
  char* bottom(int i) const { return all_.begin() + i * stride_; }
  // Not at the end of a page for all: they would meet in a few sets of the cache.
  char* top(int i) const { return end(i) - i * kTopStride % Mapping::kPageBytes; }

 private:
  static constexpr size_t kTopStride = 9 * 64;

  char* end(int i) const { return bottom(i) + bytes_; }

  int count_;
  size_t bytes_, stride_;
  Mapping all_;
};

// Makes stacks, or hands out those of a block that has ended, in this launch or an earlier one:
// making them costs more than running a small block.
class StackPool {
 public:
  // At least so many, of at least so many bytes.
  std::unique_ptr<Stacks> take(int count, size_t bytes);
  void give_back(std::unique_ptr<Stacks> stacks) { idle_.push_back(std::move(stacks)); }

 private:
  std::vector<std::unique_ptr<Stacks>> idle_;
};

}  // namespace rapt::emulator
