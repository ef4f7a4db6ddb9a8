// Where weights lie: a decode step reads all of them, in order, and nothing else takes so long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace llm {

// Hands out memory that stays until it goes itself. What is taken one after the other lies one
// after the other, in huge pages where the system grants them, so that a step of hundreds of
// matrices does not look up thousands of addresses.
class WeightMemory {
 public:
  // 64-byte aligned, uninitialised.
  std::byte* take(int64_t bytes);

  // All that was taken, in that order.
  std::vector<std::span<const std::byte>> runs() const;

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  struct Chunk {
    std::unique_ptr<std::byte, Free> data;
    int64_t bytes = 0, taken = 0;
  };
  std::vector<Chunk> chunks_;
};

}  // namespace llm
