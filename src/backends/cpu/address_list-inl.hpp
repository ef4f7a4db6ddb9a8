// Addresses that a kernel will ask memory for: those of a block of keys in the order of memory,
// then the first of the next. What they stand for is the derived lists' matter.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rapt::cpu {
namespace {

// kBeyond: how many of the next block's there are.
template <int kBeyond>
class AddressList {
 public:
  // What is added from here on is of another block, which has so many.
  void begin_block(int64_t count) {
    end_ = first_;
    last_ = first_ + count;
    limit_ = last_ + kBeyond;
  }
  bool full() const { return end_ == limit_; }
  // Where nothing is known of what comes after, the last one is asked for again.
  void end_block() {
    for (; end_ < limit_; end_++) *end_ = end_[-1];
  }

 protected:
  explicit AddressList(std::byte* storage)
      : first_(reinterpret_cast<const std::byte**>(storage)), last_(first_), end_(first_) {}

  const std::byte **first_, **last_;           // of the block
  const std::byte **end_, **limit_ = nullptr;  // of all
};

}  // namespace
}  // namespace rapt::cpu
