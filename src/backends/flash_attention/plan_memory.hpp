// What a plan gives its kernels: staged in page-locked memory, copied to the device by one copy on
// the stream of the first run.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <span>

#include "launch/memory.hpp"

namespace rapt::flash_attention {

class PlanMemory {
 public:
  explicit PlanMemory(const cuda::Context& context) : context_(context) {}

  // Begins anew, with room for `bytes`: allocates only where more is needed than ever before.
  // Nothing that was staged before may be in use any more.
  void reset(size_t bytes);
  // Copies an array behind those before it; gives its offset. Its room was counted by room_for().
  template <typename T>
  size_t add(std::span<const T> values) {
    return add_bytes(values.data(), values.size_bytes());
  }
  static size_t room_for(size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // What is staged comes before all that follows on this stream. Any number of threads.
  void upload(cuda::Stream stream) const;
  template <typename T>
  const T* at(size_t offset) const {
    return std::bit_cast<const T*>(device_.address() + offset);
  }
  // To write to directly.
  std::byte* staged(size_t offset) { return static_cast<std::byte*>(host_.data()) + offset; }
  // Room in the staging for `bytes`; gives the offset.
  size_t take(size_t bytes);

 private:
  static constexpr size_t kAlignment = 64;
  size_t add_bytes(const void* data, size_t bytes);

  const cuda::Context& context_;
  cuda::HostBuffer host_;
  cuda::DeviceBuffer device_;
  size_t used_ = 0;
  // The stream on which the copy is, so that what follows there need not wait for it again. A run
  // on another stream copies once more: the same bytes to the same place.
  mutable std::atomic<uintptr_t> uploaded_on_ = kNowhere;
  static constexpr uintptr_t kNowhere = ~uintptr_t{0};
};

}  // namespace rapt::flash_attention
