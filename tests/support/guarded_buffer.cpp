#include "support/guarded_buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace rapt::test {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

// The mapping is sparse: of a pool of many GiB only what is written takes memory.
GuardedBuffer::GuardedBuffer(size_t bytes, size_t alignment) : bytes_(bytes) {
  const size_t room = (bytes + alignment - 1 + kPage - 1) / kPage * kPage;
  mapped_ = room + 2 * kPage;
  void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(base);
  mprotect(base_, kPage, PROT_NONE);
  mprotect(base_ + mapped_ - kPage, kPage, PROT_NONE);
  const auto end = reinterpret_cast<uintptr_t>(base_ + mapped_ - kPage);
  data_ = reinterpret_cast<std::byte*>((end - bytes) / alignment * alignment);
}

GuardedBuffer::~GuardedBuffer() {
  if (base_) munmap(base_, mapped_);
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void GuardedBuffer::fill(uint8_t value) {
  if (base_) std::memset(base_ + kPage, value, mapped_ - 2 * kPage);
}

bool GuardedBuffer::slack_holds(uint8_t value) const {
  if (!base_) return true;
  auto holds = [value](const std::byte* begin, const std::byte* end) {
    return std::all_of(begin, end, [value](std::byte b) { return b == std::byte{value}; });
  };
  return holds(base_ + kPage, data_) && holds(data_ + bytes_, base_ + mapped_ - kPage);
}

}  // namespace rapt::test
