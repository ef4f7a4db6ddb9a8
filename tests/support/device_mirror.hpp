// Doubles of host buffers in the memory of a context's device. On the CPU there are none: buffers
// stand for themselves.
#pragma once

#include <map>

#include "rapt/rapt.hpp"
#include "support/guarded_buffer.hpp"

namespace rapt::test {

// On a real GPU, where nothing else looks at what kernels write, every double lies between bands of
// a sentinel. Emulated devices find such writes themselves, and reads; of sparse buffers they have
// only what is not, so that those may be larger than their memory.
class DeviceMirror {
 public:
  explicit DeviceMirror(Context& context) : context_(context) {}
  const Context& context() const { return context_; }

  // Copies the bytes to the device, anew if they were there already: of a buffer that is sparse
  // before `first`, those from there on. A real GPU has NaN where offsets of 32 bits would lead.
  void put(const void* data, size_t bytes, size_t first = 0);
  template <typename Buffer>
  void put(const Buffer& buffer) {
    put(buffer.data(), buffer.size() * sizeof *buffer.data());
  }
  // Copies their double back over them.
  void fetch(void* data, size_t bytes) const;
  template <typename Buffer>
  void fetch(Buffer& buffer) const {
    fetch(buffer.data(), buffer.size() * sizeof *buffer.data());
  }
  // The same view of the doubles; no view stays none.
  TensorView view(const TensorView& host) const;
  void* address(const void* host) const;  // null for what was not put
  // Throws std::runtime_error if a band was written.
  void check_bands() const;

 private:
  bool is_host() const { return context_.tensor_device().kind == DeviceKind::kCpu; }

  // Of the host's bytes [first, bytes); memory holds them from `band` on.
  struct Double {
    DeviceBuffer memory;
    size_t bytes = 0, first = 0, band = 0;
  };
  Context& context_;
  std::map<const std::byte*, Double> doubles_;  // by the host's first byte
};

}  // namespace rapt::test
