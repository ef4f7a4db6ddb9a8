#include "llm/engine/weight_memory.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace llm {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20, kChunk = 8 * kHugePage, kLine = 64;
constexpr std::align_val_t kAlignment{kHugePage};

int64_t round_up(int64_t bytes, int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

void WeightMemory::Free::operator()(std::byte* data) const {
  ::operator delete(data, kAlignment);
}

std::byte* WeightMemory::take(int64_t bytes) {
  bytes = round_up(bytes, kLine);
  if (chunks_.empty() || chunks_.back().bytes - chunks_.back().taken < bytes) {
    const int64_t size = round_up(std::max(bytes, kChunk), kHugePage);
    auto* data = static_cast<std::byte*>(::operator new(static_cast<size_t>(size), kAlignment));
    chunks_.push_back({std::unique_ptr<std::byte, Free>(data), size, 0});
#if defined(MADV_HUGEPAGE)
    madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);  // a wish: no harm if it is refused
#endif
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
