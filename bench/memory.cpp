#include "bench/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <random>
#include <utility>
#include <vector>

namespace rapt::bench {
namespace {

constexpr int64_t kCycle = 65537;

// Normal values are far from the ends of fp16's range: the exponent is moved, the mantissa cut.
uint16_t to_float16(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const int32_t exponent = static_cast<int32_t>((bits >> 23) & 0xffu) - 127 + 15;
  if (exponent <= 0) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << 10 |
                               ((bits >> 13) & 0x3ffu));
}

template <typename Element>
void repeat(std::byte* data, int64_t bytes, const std::vector<Element>& cycle) {
  const auto cycle_bytes = static_cast<int64_t>(cycle.size() * sizeof(Element));
  for (int64_t i = 0; i < bytes; i += cycle_bytes)
    std::memcpy(data + i, cycle.data(), static_cast<size_t>(std::min(cycle_bytes, bytes - i)));
}

}  // namespace

Memory::Memory(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  madvise(mapped, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#endif
  data_ = static_cast<std::byte*>(mapped);
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void fill_random(std::byte* data, int64_t bytes, DType dtype, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(kCycle);
  for (float& value : values) value = normal(random);
  if (dtype == DType::kFloat32) return repeat(data, bytes, values);
  std::vector<uint16_t> halves;
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    halves.push_back(dtype == DType::kFloat16 ? to_float16(bits)
                                              : static_cast<uint16_t>(bits >> 16));
  }
  repeat(data, bytes, halves);
}

void fill_poison(std::byte* data, int64_t bytes) {
  std::fill_n(data, bytes, std::byte{0xff});
}

bool has_nan(const std::byte* data, int64_t bytes, DType dtype) {
  const bool wide = dtype == DType::kFloat32;
  for (int64_t i = 0; i < bytes; i += wide ? 4 : 2) {
    uint32_t bits = 0;
    std::memcpy(&bits, data + i, wide ? 4 : 2);
    const uint32_t infinity = wide ? 0x7f800000u : dtype == DType::kFloat16 ? 0x7c00u : 0x7f80u;
    if ((bits & (wide ? 0x7fffffffu : 0x7fffu)) > infinity) return true;
  }
  return false;
}

}  // namespace rapt::bench
