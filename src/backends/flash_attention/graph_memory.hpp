// What the kernels of a graph envelope's plan read: arrays that stay where they are, and take each
// batch's contents by copies on a stream. What an array has beyond these is 0.
//
// Rejected: a copy in the graph, which reads the page-locked room anew at each launch. Every
// layer's run would have one, and the host could fill the room only when the launch before has read
// it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "launch/memory.hpp"

namespace rapt::flash_attention {

class GraphMemory {
 public:
  // Arrays of so many bytes at most, all 0 once the stream is there.
  GraphMemory(const cuda::Context& context, std::span<const size_t> capacities,
              cuda::Stream stream);

  template <typename T>
  const T* at(size_t array) const {
    return std::bit_cast<const T*>(device_.address() + arrays_[array].offset);
  }

  // Page-locked room for the next contents of all arrays. Throws Error(kInvalidArgument) where
  // copies from it are still to happen: two batches are under way.
  void open();
  template <typename T>
  T* staged(size_t array) {
    return reinterpret_cast<T*>(room() + arrays_[array].offset);
  }
  // Puts what was staged, the first bytes[i] of array i, on the stream.
  void upload(std::span<const size_t> bytes, cuda::Stream stream);

 private:
  struct Array {
    size_t offset;
    size_t used;  // bytes that may be other than 0 on the device
  };
  // The contents of one batch, and the event that they have been copied.
  struct Staging {
    Staging(const cuda::Context& context, size_t bytes) : room(context, bytes), copied(context) {}
    cuda::HostBuffer room;
    cuda::OwnedEvent copied;
  };
  std::byte* room() const { return static_cast<std::byte*>(staging_[turn_].room.data()); }

  const cuda::Context& context_;
  std::vector<Array> arrays_;
  cuda::DeviceBuffer device_;
  // In turn: one is filled while the other's copy waits for the run before it.
  std::array<Staging, 2> staging_;
  size_t turn_ = 0;
};

}  // namespace rapt::flash_attention
