#include "emulator/driver/context.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator/driver/capabilities.hpp"
#include "emulator/driver/module.hpp"

namespace rapt::emulator {

using cuda::ContextHandle;
using cuda::DeviceAttribute;
using cuda::DeviceHandle;

namespace {

// The plans for few SMs are small, and an allocation of what an emulated device has fits most
// machines.
constexpr int32_t kNumSms = 4;
constexpr int64_t kMemoryBytes = int64_t{4} << 30;
constexpr int32_t kDriverVersion = 13000;

struct Device {
  DeviceInfo info;
  ContextObject context;
};

// Never destroyed: programs may hold on to contexts and buffers until their very end.
std::vector<std::unique_ptr<Device>>& devices() {
  static auto& all = *new std::vector<std::unique_ptr<Device>>([] {
    std::vector<std::unique_ptr<Device>> made;
    for (int32_t compute_capability : kComputeCapabilities) {
      auto device = std::make_unique<Device>();
      device->info = device_info(concat("sm", compute_capability));
      device->info.name = concat("emulated sm_", compute_capability);
      device->info.num_sms = kNumSms;
      device->info.memory_bytes = kMemoryBytes;
      device->context.ordinal = static_cast<int32_t>(made.size());
      made.push_back(std::move(device));
    }
    return made;
  }());
  return all;
}

Device& device_of(DeviceHandle handle) {
  require(handle >= 0 && handle < std::ssize(devices()), kInvalidDevice, "emulated device ", handle,
          ": there are ", devices().size(), ", numbered from 0");
  return *devices()[static_cast<size_t>(handle)];
}

// Of a thread, the innermost last. Of no type that is destroyed: the contexts that a program keeps
// to its very end are left after the main thread's own objects are gone.
struct CurrentContexts {
  static constexpr size_t kMost = 64;
  ContextHandle handles[kMost];
  size_t count;

  ContextHandle last() const { return count ? handles[count - 1] : nullptr; }
};
thread_local constinit CurrentContexts current = {};

}  // namespace

ContextObject& context_of(DeviceHandle device) {
  return device_of(device).context;
}

ContextObject& current_context() {
  require(current.last(), kInvalidContext, "no context is current");
  ContextObject& context = *current.last();
  const std::lock_guard lock(context.mutex);
  require(context.num_users > 0, kInvalidContext, "nobody retains the current context");
  return context;
}

#pragma GCC visibility push(default)
extern "C" {

Result cuInit(uint32_t flags) {
  return answered([&] { require(flags == 0, cuda::kInvalidValue, "flags must be 0"); });
}
Result cuDriverGetVersion(int32_t* version) {
  return *version = kDriverVersion, cuda::kSuccess;
}

Result cuDeviceGetCount(int32_t* count) {
  return answered([&] { *count = static_cast<int32_t>(devices().size()); });
}
Result cuDeviceGet(DeviceHandle* device, int32_t ordinal) {
  return answered([&] { *device = device_of(ordinal).context.ordinal; });
}
Result cuDeviceGetName(char* name, int32_t bytes, DeviceHandle device) {
  return answered([&] {
    require(bytes > 0, cuda::kInvalidValue, "no room for a name");
    const std::string& its = device_of(device).info.name;
    const size_t length = std::min(its.size(), static_cast<size_t>(bytes) - 1);
    std::memcpy(name, its.c_str(), length);
    name[length] = '\0';
  });
}
Result cuDeviceGetAttribute(int32_t* value, DeviceAttribute attribute, DeviceHandle device) {
  return answered([&] {
    const DeviceInfo& info = device_of(device).info;
    // A bus on which a clock of so many kHz makes the table's bandwidth, in whole numbers.
    constexpr int32_t kBusBits = 8000;
    switch (attribute) {
      case DeviceAttribute::kMultiprocessorCount:
        *value = info.num_sms;
        return;
      case DeviceAttribute::kMemoryClockRate:
        *value = static_cast<int32_t>(info.memory_bandwidth / (2e3 * kBusBits / 8));
        return;
      case DeviceAttribute::kGlobalMemoryBusWidth:
        *value = kBusBits;
        return;
      case DeviceAttribute::kComputeCapabilityMajor:
        *value = info.compute_capability / 10;
        return;
      case DeviceAttribute::kComputeCapabilityMinor:
        *value = info.compute_capability % 10;
        return;
      case DeviceAttribute::kMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int32_t>(info.shared_memory_bytes_per_block);
        return;
    }
    require(false, kNotSupported, "device attribute ", static_cast<int32_t>(attribute));
  });
}
Result cuDeviceTotalMem_v2(size_t* bytes, DeviceHandle device) {
  return answered([&] { *bytes = static_cast<size_t>(device_of(device).info.memory_bytes); });
}

Result cuDevicePrimaryCtxRetain(ContextHandle* context, DeviceHandle device) {
  return answered([&] {
    ContextObject& its = context_of(device);
    const std::lock_guard lock(its.mutex);
    its.num_users++;
    *context = &its;
  });
}
Result cuDevicePrimaryCtxRelease_v2(DeviceHandle device) {
  return answered([&] {
    ContextObject& its = context_of(device);
    const std::lock_guard lock(its.mutex);
    require(its.num_users > 0, kInvalidContext, "nobody retains the device's context");
    if (--its.num_users > 0) return;
    its.modules.clear();
    its.memory = Memory();
    its.allocated_bytes = its.num_allocations = 0;
  });
}
Result cuCtxGetCurrent(ContextHandle* context) {
  return *context = current.last(), cuda::kSuccess;
}
Result cuCtxPushCurrent_v2(ContextHandle context) {
  return answered([&] {
    require(current.count < CurrentContexts::kMost, kInvalidContext, current.count,
            " contexts are current within each other");
    current.handles[current.count++] = context;
  });
}
Result cuCtxPopCurrent_v2(ContextHandle* context) {
  return answered([&] {
    require(current.count > 0, kInvalidContext, "no context is current");
    if (context) *context = current.last();
    current.count--;
  });
}
}
#pragma GCC visibility pop

}  // namespace rapt::emulator

const rapt::DeviceInfo& rapt::cuda::ContextObject::info() const {
  return emulator::device_of(ordinal).info;
}
