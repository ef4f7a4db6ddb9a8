// A GPU of this machine, and the context that Rapt shares with the rest of the process on it.
#pragma once

#include <vector>

#include "launch/driver.hpp"
#include "rapt/device.hpp"

namespace rapt::cuda {

int32_t device_count(const Driver& driver);

class Device {
 public:
  // Throws Error(kInvalidArgument) where there is no such device.
  Device(const Driver& driver, int32_t ordinal);

  const Driver& driver() const { return *driver_; }
  int32_t ordinal() const { return ordinal_; }
  DeviceHandle handle() const { return handle_; }
  // What the driver says of it; the name is the driver's, e.g. "NVIDIA H200". The bandwidth is
  // that of the memory's clock and width.
  const DeviceInfo& info() const { return info_; }

 private:
  const Driver* driver_;
  int32_t ordinal_;
  DeviceHandle handle_ = 0;
  DeviceInfo info_;
};

// A device's primary context, which CUDA's runtime and so PyTorch use too: pointers and streams are
// theirs and ours alike. Retained while the object lives. Everything made in a context refers to
// it and must be gone before it.
class Context {
 public:
  explicit Context(const Device& device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return device_.driver(); }
  const Device& device() const { return device_; }
  ContextHandle handle() const { return handle_; }

 private:
  Device device_;
  ContextHandle handle_ = nullptr;
};

// Makes a context the calling thread's current one for its lifetime. Costs one look where it
// already is. A run makes one such, around all its launches and copies.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

}  // namespace rapt::cuda
