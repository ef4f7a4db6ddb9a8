// Doubles of host buffers in the memory of a context's device.
#pragma once

#include <map>

#include "rapt/rapt.hpp"
#include "support/guarded_buffer.hpp"

namespace rapt::test {

class DeviceMirror {
 public:
  explicit DeviceMirror(Context& context) : context_(context) {}

  // Copies the buffer to the device, anew if it was there already.
  void put(const GuardedBuffer& buffer);
  // Copies its double back over it.
  void fetch(GuardedBuffer& buffer) const;
  // The same view of the doubles; no view stays none.
  TensorView view(const TensorView& host) const;
  void* address(const void* host) const;  // null for what is in no buffer

 private:
  Context& context_;
  std::map<const std::byte*, DeviceBuffer> doubles_;  // by the host's first byte
};

}  // namespace rapt::test
