// Memory whose end meets a page that must not be touched, with checked slack on both sides.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rapt::test {

// `bytes` that end at an unmapped page, as far as the alignment of their start lets them, and begin
// at most a page after another. Reading or writing past the end faults at the instruction that does
// it; what a write before the start or into the slack leaves is found by slack_holds().
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  explicit GuardedBuffer(size_t bytes, size_t alignment = 1);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

  // The data and the slack around it.
  void fill(uint8_t value);
  // The slack still holds what fill() wrote there.
  bool slack_holds(uint8_t value) const;

 private:
  std::byte* base_ = nullptr;  // of the mapping: guard page, slack and data, guard page
  size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace rapt::test
