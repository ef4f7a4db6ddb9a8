// Memory of the weights and of the cache: hundreds of megabytes that every decode step reads. It is
// in huge pages where the system grants them, or a step would look up thousands of addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace llm {

struct FreeLarge {
  void operator()(std::byte* data) const;
};
using LargeMemory = std::unique_ptr<std::byte, FreeLarge>;

// A wish for huge pages within `bytes` bytes at `data`, which may lie anywhere.
void ask_huge_pages(std::byte* data, int64_t bytes);

// Uninitialised: what is never written costs no memory. Null if there is none.
LargeMemory allocate_large(int64_t bytes);

// Hands out memory that stays until it goes itself. What is taken one after the other lies one
// after the other.
class WeightMemory {
 public:
  // 64-byte aligned, uninitialised. Throws std::bad_alloc.
  std::byte* take(int64_t bytes);

  // All that was taken, in that order.
  std::vector<std::span<const std::byte>> runs() const;

 private:
  struct Chunk {
    LargeMemory data;
    int64_t bytes = 0, taken = 0;
  };
  std::vector<Chunk> chunks_;
};

}  // namespace llm
