#include "llm/engine/large_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace llm {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20, kChunk = 8 * kHugePage, kLine = 64;
constexpr std::align_val_t kAlignment{kHugePage};

}  // namespace

void FreeLarge::operator()(std::byte* data) const {
  ::operator delete(data, kAlignment);
}

LargeMemory allocate_large(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  LargeMemory memory(static_cast<std::byte*>(::operator new(size, kAlignment, std::nothrow)));
#if defined(MADV_HUGEPAGE)
  if (memory) madvise(memory.get(), size, MADV_HUGEPAGE);  // a wish: no harm if it is refused
#endif
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
