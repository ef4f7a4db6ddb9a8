// Anonymous pages between two unreadable ones, so that what runs over an end faults.
#pragma once

#include <cstddef>

namespace rapt::emulator {

class Mapping {
 public:
  static constexpr size_t kPageBytes = 4096;

  // At least `bytes`, rounded up to pages; zero until written.
  explicit Mapping(size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* begin() const { return base_ + kPageBytes; }
  char* end() const { return base_ + total_bytes_ - kPageBytes; }

 private:
  size_t total_bytes_;
  char* base_;
};

}  // namespace rapt::emulator
