// What the dense layers on the host give the attention on its device, and get from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rapt/rapt.hpp"

namespace llm {

// Memory of the attention's device with the host's view of it: the same bytes where the host
// reaches them (on the CPU, on emulated devices), else a copy, and the calls below bring one side's
// bytes to the other.
class ExchangeBuffer {
 public:
  ExchangeBuffer() = default;
  // `context` must outlive it. Throws rapt::Error(kOutOfMemory).
  ExchangeBuffer(rapt::Context& context, int64_t bytes);

  std::byte* host() { return host_.empty() ? device_data() : host_.data(); }
  const std::byte* host() const { return host_.empty() ? device_data() : host_.data(); }
  std::byte* device_data() const { return static_cast<std::byte*>(device_.data()); }
  rapt::Device device() const { return device_.device(); }

  // The first `bytes` bytes. Both are done when they return, and so is all that the device's
  // default stream had to do before to_host().
  void to_device(int64_t bytes);
  void to_host(int64_t bytes);

 private:
  const rapt::Context* context_ = nullptr;
  rapt::DeviceBuffer device_;
  std::vector<std::byte> host_;  // empty where device_ is the host's too
};

}  // namespace llm
