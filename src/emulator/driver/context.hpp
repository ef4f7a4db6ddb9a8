// The emulated devices and what is made on them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/driver/result.hpp"
#include "emulator/memory.hpp"
#include "rapt/device.hpp"

namespace rapt::emulator {
class Image;
struct Function;
}  // namespace rapt::emulator

namespace rapt::cuda {

struct ModuleObject;

// A device's primary context: there is no other. Its handle stays the same; what is in it lives
// while somebody retains it.
struct ContextObject {
  std::recursive_mutex mutex;  // of what follows; held while a kernel runs
  int32_t ordinal = 0;
  int32_t num_users = 0;
  emulator::Memory memory;
  uint64_t allocated_bytes = 0, num_allocations = 0;
  std::map<const ModuleObject*, std::unique_ptr<ModuleObject>> modules;

  const DeviceInfo& info() const;
};

}  // namespace rapt::cuda

namespace rapt::emulator {

using cuda::ContextObject;

// By ordinal. Throws a Refusal where there is no such device.
ContextObject& context_of(cuda::DeviceHandle device);

// The calling thread's current one. Throws a Refusal where none is, or where nobody retains it.
ContextObject& current_context();

}  // namespace rapt::emulator
