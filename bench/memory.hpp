// Memory for benchmarks: present, random where it is read, NaN where it must not be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rapt/dtype.hpp"

namespace rapt::bench {

// Page-aligned, in huge pages where the system grants them. Written once before it is measured, so
// that no measurement pays for the first touch.
class Memory {
 public:
  Memory() = default;
  explicit Memory(int64_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Normal random numbers of fp32, fp16 or bf16. They repeat after a prime number of elements, which
// no row length divides, so that no two rows near each other are alike.
void fill_random(std::byte* data, int64_t bytes, DType dtype, uint32_t seed);
// NaN in each of the three.
void fill_poison(std::byte* data, int64_t bytes);
bool has_nan(const std::byte* data, int64_t bytes, DType dtype);

}  // namespace rapt::bench
