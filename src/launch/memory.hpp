// Memory of a device and page-locked memory of the host, owned; and copies on a stream.
#pragma once

#include <cstddef>

#include "launch/stream.hpp"

namespace rapt::cuda {

// Uninitialised device memory, aligned to 256 bytes at least. Making and ending one may wait for
// the device: not inside a run. Throws Error(kOutOfMemory) with the bytes asked for.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const Context& context, size_t bytes);  // 0: nothing is allocated
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  DevicePointer address() const { return address_; }
  size_t bytes() const { return bytes_; }

 private:
  const Context* context_ = nullptr;
  DevicePointer address_ = 0;
  size_t bytes_ = 0;
};

// Page-locked host memory: what a copy that is really asynchronous, or captured, must start from.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(const Context& context, size_t bytes);
  ~HostBuffer();
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  const Context* context_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// All need a current context, and return when the copy is on the stream (0 bytes: nothing is). Host
// memory must stay as it is until it is done; where it is not page-locked the driver may wait.
void copy_to_device(const Driver& driver, DevicePointer to, const void* from, size_t bytes,
                    Stream stream);
void copy_to_host(const Driver& driver, void* to, DevicePointer from, size_t bytes, Stream stream);
void copy_on_device(const Driver& driver, DevicePointer to, DevicePointer from, size_t bytes,
                    Stream stream);
void fill(const Driver& driver, DevicePointer to, uint8_t value, size_t bytes, Stream stream);

}  // namespace rapt::cuda
