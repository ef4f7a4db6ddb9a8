// Memory of the emulated devices. Device addresses are host addresses, so that a program that
// knows may look at them; a stream is done when a call returns.
#include "emulator/memory.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "emulator/driver/context.hpp"
#include "emulator/driver/graph.hpp"
#include "emulator/driver/stream.hpp"

namespace rapt::emulator {

using cuda::DevicePointer;
using cuda::StreamHandle;

namespace {

// What "CUDA C++ Programming Guide", "Device Memory Accesses" promises of allocations.
constexpr size_t kAlignment = 256;

char* host_address(DevicePointer pointer) {
  return reinterpret_cast<char*>(pointer);
}

// The bytes of one allocation of the context's.
char* device_bytes(const ContextObject& context, DevicePointer pointer, size_t bytes) {
  char* const begin = host_address(pointer);
  const Allocation* allocation = context.memory.find(begin);
  require(allocation && begin <= allocation->end &&
              bytes <= static_cast<size_t>(allocation->end - begin),
          cuda::kInvalidValue, bytes, " bytes at ", context.memory.describe(begin),
          " are not inside an allocation of ", context.info().name);
  return begin;
}

void require_host(const ContextObject& context, const void* pointer) {
  require(pointer && !context.memory.find(pointer), cuda::kInvalidValue,
          context.memory.describe(pointer), " is no host memory");
}

// Page-locked memory, which no context owns here.
struct HostMemory {
  std::mutex mutex;
  std::unordered_map<void*, std::unique_ptr<Mapping>> owned;
};
HostMemory& host_memory() {
  static auto& memory = *new HostMemory;
  return memory;
}

// act(context, lock held), for work put on a stream. It owns what it needs.
template <typename Act>
Result on_stream(StreamHandle stream, const Act& act) {
  return answered([&] {
    require_stream(stream);
    do_or_keep(stream, [act, &context = current_context()] {
      const std::lock_guard lock(context.mutex);
      act(context);
    });
  });
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result cuMemAlloc_v2(DevicePointer* pointer, size_t bytes) {
  return answered([&] {
    ContextObject& context = current_context();
    const std::lock_guard lock(context.mutex);
    require(bytes > 0, cuda::kInvalidValue, "an allocation of 0 bytes");
    const uint64_t total = static_cast<uint64_t>(context.info().memory_bytes);
    require(bytes <= total - context.allocated_bytes, cuda::kOutOfMemory, context.allocated_bytes,
            " of the ", total, " bytes of ", context.info().name, " are allocated");
    char* const begin = context.memory.allocate_bytes(
        bytes, concat("allocation ", context.num_allocations++, " (", bytes, " bytes)"),
        kAlignment);
    context.allocated_bytes += bytes;
    *pointer = reinterpret_cast<DevicePointer>(begin);
  });
}
Result cuMemFree_v2(DevicePointer pointer) {
  return answered([&] {
    if (!pointer) return;
    ContextObject& context = current_context();
    const std::lock_guard lock(context.mutex);
    const size_t bytes = context.memory.release(host_address(pointer));
    require(bytes > 0, cuda::kInvalidValue, context.memory.describe(host_address(pointer)),
            " is not the beginning of an allocation");
    context.allocated_bytes -= bytes;
  });
}

Result cuMemHostAlloc(void** pointer, size_t bytes, uint32_t flags) {
  return answered([&] {
    current_context();
    require(flags == 0, kNotSupported, "flags of page-locked memory");
    require(bytes > 0, cuda::kInvalidValue, "an allocation of 0 bytes");
    auto mapping = std::make_unique<Mapping>(bytes);
    HostMemory& memory = host_memory();
    const std::lock_guard lock(memory.mutex);
    *pointer = mapping->begin();
    memory.owned[*pointer] = std::move(mapping);
  });
}
Result cuMemFreeHost(void* pointer) {
  return answered([&] {
    HostMemory& memory = host_memory();
    const std::lock_guard lock(memory.mutex);
    require(memory.owned.erase(pointer) == 1, cuda::kInvalidValue, pointer,
            " is no page-locked memory");
  });
}

Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, StreamHandle stream) {
  return on_stream(stream, [=](const ContextObject& context) {
    require_host(context, from);
    std::memcpy(device_bytes(context, to, bytes), from, bytes);
  });
}
Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, StreamHandle stream) {
  return on_stream(stream, [=](const ContextObject& context) {
    require_host(context, to);
    std::memcpy(to, device_bytes(context, from, bytes), bytes);
  });
}
Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes,
                            StreamHandle stream) {
  return on_stream(stream, [=](const ContextObject& context) {
    std::memmove(device_bytes(context, to, bytes), device_bytes(context, from, bytes), bytes);
  });
}
Result cuMemsetD8Async(DevicePointer to, uint8_t value, size_t bytes, StreamHandle stream) {
  return on_stream(stream, [=](const ContextObject& context) {
    std::memset(device_bytes(context, to, bytes), value, bytes);
  });
}
}
#pragma GCC visibility pop

}  // namespace rapt::emulator
