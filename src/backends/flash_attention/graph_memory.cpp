#include "backends/flash_attention/graph_memory.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/check.hpp"

namespace rapt::flash_attention {
namespace {

constexpr size_t kAlignment = 64;
// Arrays with so many bytes of nothing between them are copied in one go: a copy more is taken to
// cost 2 us, in which a bus of 16 GB/s moves as many. Not measured.
constexpr size_t kJoinedBytes = size_t{32} << 10;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t total(std::span<const size_t> capacities) {
  return std::accumulate(capacities.begin(), capacities.end(), size_t{0},
                         [](size_t sum, size_t bytes) { return sum + aligned(bytes); });
}

}  // namespace

GraphMemory::GraphMemory(const cuda::Context& context, std::span<const size_t> capacities,
                         cuda::Stream stream)
    : context_(context),
      device_(context, total(capacities)),
      staging_{Staging(context, device_.bytes()), Staging(context, device_.bytes())} {
  size_t offset = 0;
  for (const size_t bytes : capacities) {
    arrays_.push_back({offset, 0});
    offset += aligned(bytes);
  }
  cuda::fill(context.driver(), device_.address(), 0, device_.bytes(), stream);
}

void GraphMemory::open() {
  check(cuda::happened(context_.driver(), staging_[turn_].copied), "replan: the last ",
        staging_.size(),
        " batches are not copied to the device yet: wait for what is on their stream");
}

void GraphMemory::upload(std::span<const size_t> bytes, cuda::Stream stream) {
  const cuda::Driver& driver = context_.driver();
  size_t begin = 0, end = 0;  // of the copy that arrays are added to
  const auto copy = [&] {
    cuda::copy_to_device(driver, device_.address() + begin, room() + begin, end - begin, stream);
  };
  for (size_t i = 0; i < arrays_.size(); i++) {
    Array& array = arrays_[i];
    // Of the batch before there may be more.
    array.used = std::max(array.used, bytes[i]);
    if (array.used == 0) continue;
    const bool joined = end > 0 && array.offset - end <= kJoinedBytes;
    if (joined) {
      std::memset(room() + end, 0, array.offset - end);
    } else {
      copy();
      begin = array.offset;
    }
    std::memset(room() + array.offset + bytes[i], 0, array.used - bytes[i]);
    end = array.offset + array.used;
  }
  copy();
  cuda::record(driver, staging_[turn_].copied, stream);
  turn_ = (turn_ + 1) % staging_.size();
  for (size_t i = 0; i < arrays_.size(); i++) arrays_[i].used = bytes[i];
}

}  // namespace rapt::flash_attention
