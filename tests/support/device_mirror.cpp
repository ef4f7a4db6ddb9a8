#include "support/device_mirror.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace rapt::test {
namespace {

constexpr size_t kBand = 4096;
constexpr auto kSentinels = [] {
  std::array<uint8_t, kBand> bytes{};
  bytes.fill(0xa5);
  return bytes;
}();
// NaN where offsets of bytes, or of elements of 2, would lead from [first, bytes) with their lower
// 32 bits alone.
void poison_wrapped(DeviceBuffer& memory, size_t begin, size_t first, size_t bytes) {
  const std::vector<uint8_t> nans(std::min(first, bytes - first), 0xff);
  for (const size_t wrap : {size_t{1} << 32, size_t{2} << 32})
    for (const size_t at : {first % wrap, size_t{0}})
      if (at + nans.size() <= first) memory.copy_from_host(nans.data(), nans.size(), begin + at);
}

}  // namespace

void DeviceMirror::put(const void* data, size_t bytes, size_t first) {
  if (bytes == 0 || is_host()) return;
  const auto* at = static_cast<const std::byte*>(data);
  Double& its = doubles_[at];
  if (its.bytes != bytes) {
    its = {};
    its.bytes = bytes;
    if (DeviceBuffer(context_, 0).host_accessible()) {
      its.first = first;
      its.memory = DeviceBuffer(context_, bytes - first);  // found where they are passed
    } else {
      its.band = kBand;
      its.memory = DeviceBuffer(context_, bytes + 2 * kBand);
      its.memory.copy_from_host(kSentinels.data(), kBand);
      its.memory.copy_from_host(kSentinels.data(), kBand, kBand + bytes);
      poison_wrapped(its.memory, kBand, first, bytes);
    }
  }
  its.memory.copy_from_host(at + first, bytes - first, its.band + first - its.first);
}

void DeviceMirror::fetch(void* data, size_t bytes) const {
  if (bytes == 0 || is_host()) return;
  const Double& its = doubles_.at(static_cast<const std::byte*>(data));
  its.memory.copy_to_host(data, bytes, its.band);
}

void* DeviceMirror::address(const void* host) const {
  if (is_host()) return const_cast<void*>(host);
  const auto* at = static_cast<const std::byte*>(host);
  auto next = doubles_.upper_bound(at);
  if (next == doubles_.begin()) return nullptr;
  const auto& [begin, its] = *std::prev(next);
  const auto offset = static_cast<size_t>(at - begin);
  if (offset >= its.bytes) return nullptr;
  // Before the memory's begin, where that is not of the first bytes: no pointer to compute with.
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(its.memory.data()) + its.band +
                                 offset - its.first);
}

TensorView DeviceMirror::view(const TensorView& host) const {
  TensorView view = host;
  if (!view.has_value()) return view;
  view.data = address(host.data);
  view.device = context_.tensor_device();
  return view;
}

void DeviceMirror::check_bands() const {
  for (const auto& [begin, its] : doubles_)
    for (const size_t at : {size_t{0}, its.band + its.bytes}) {
      if (its.band == 0) continue;
      std::array<uint8_t, kBand> found{};
      its.memory.copy_to_host(found.data(), kBand, at);
      if (found != kSentinels)
        throw std::runtime_error(std::string("written ") + (at ? "past" : "before") +
                                 " a buffer of " + std::to_string(its.bytes) + " bytes");
    }
}

}  // namespace rapt::test
