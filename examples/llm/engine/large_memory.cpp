#include "llm/engine/large_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace llm {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20, kChunk = 8 * kHugePage, kLine = 64;
constexpr std::align_val_t kAlignment{kHugePage};

}  // namespace

void FreeLarge::operator()(std::byte* data) const {
  ::operator delete(data, kAlignment);
}

void ask_huge_pages([[maybe_unused]] std::byte* data, [[maybe_unused]] int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  // Only whole ones.
  void* begin = data;
  auto space = static_cast<size_t>(bytes);
  if (std::align(kHugePage, kHugePage, begin, space))
    madvise(begin, space, MADV_HUGEPAGE);  // no harm if it is refused
#endif
}

LargeMemory allocate_large(int64_t bytes) {
  LargeMemory memory(static_cast<std::byte*>(
      ::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow)));
  if (memory) ask_huge_pages(memory.get(), bytes);
  return memory;
}

std::byte* WeightMemory::take(int64_t bytes) {
  bytes = (bytes + kLine - 1) / kLine * kLine;
  if (chunks_.empty() || chunks_.back().bytes - chunks_.back().taken < bytes) {
    const int64_t size = std::max(bytes, kChunk);
    LargeMemory data = allocate_large(size);
    if (!data) throw std::bad_alloc();
    chunks_.push_back({std::move(data), size, 0});
  }
  Chunk& chunk = chunks_.back();
  chunk.taken += bytes;
  return chunk.data.get() + chunk.taken - bytes;
}

std::vector<std::span<const std::byte>> WeightMemory::runs() const {
  std::vector<std::span<const std::byte>> runs;
  for (const Chunk& chunk : chunks_)
    runs.emplace_back(chunk.data.get(), static_cast<size_t>(chunk.taken));
  return runs;
}

}  // namespace llm
