#include "support/device_mirror.hpp"

#include <utility>

namespace rapt::test {

void DeviceMirror::put(const GuardedBuffer& buffer) {
  if (buffer.size() == 0) return;
  DeviceBuffer& its = doubles_[buffer.data()];
  if (its.bytes() != buffer.size()) its = DeviceBuffer(context_, buffer.size());
  its.copy_from_host(buffer.data(), buffer.size());
}

void DeviceMirror::fetch(GuardedBuffer& buffer) const {
  if (buffer.size()) doubles_.at(buffer.data()).copy_to_host(buffer.data(), buffer.size());
}

void* DeviceMirror::address(const void* host) const {
  const auto* at = static_cast<const std::byte*>(host);
  auto next = doubles_.upper_bound(at);
  if (next == doubles_.begin()) return nullptr;
  const auto& [first, its] = *std::prev(next);
  const auto offset = static_cast<size_t>(at - first);
  return offset < its.bytes() ? static_cast<std::byte*>(its.data()) + offset : nullptr;
}

TensorView DeviceMirror::view(const TensorView& host) const {
  TensorView view = host;
  if (!view.has_value()) return view;
  view.data = address(host.data);
  view.device = context_.tensor_device();
  return view;
}

}  // namespace rapt::test
