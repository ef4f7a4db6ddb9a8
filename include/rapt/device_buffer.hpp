// Memory of a context's device, for programs without CUDA's toolkit.
#pragma once

#include <cstddef>

#include "rapt/context.hpp"
#include "rapt/export.hpp"
#include "rapt/tensor.hpp"

namespace rapt {

// Uninitialised memory, aligned to 256 bytes, where the context's attention runs: tensors, caches
// and workspaces may lie in it, as in any other memory of that device. The context must outlive it,
// and all work on it must be done before it ends.
class RAPT_API DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // May wait for the device. Throws Error(kOutOfMemory) with the bytes asked for.
  DeviceBuffer(Context& context, size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  void* data() const { return data_; }  // null if bytes() is 0
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  // The host may read and write data() itself: on the CPU, and on emulated devices when no work is
  // under way.
  bool host_accessible() const { return host_accessible_; }

  // Copies of `bytes` bytes at `offset` that take their turn on the CUDA stream (null: the default
  // one) and are done when the call returns. Throw Error(kInvalidArgument) for what lies outside.
  void copy_from_host(const void* from, size_t bytes, size_t offset = 0, void* stream = nullptr);
  void copy_to_host(void* to, size_t bytes, size_t offset = 0, void* stream = nullptr) const;

 private:
  void check_range(size_t bytes, size_t offset) const;

  const Context* context_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Device device_{};
  bool host_accessible_ = false;
};

}  // namespace rapt
