#include "launch/device.hpp"

namespace rapt::cuda {

int32_t device_count(const Driver& driver) {
  int32_t count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

Device::Device(const Driver& driver, int32_t ordinal) : driver_(&driver), ordinal_(ordinal) {
  const int32_t count = device_count(driver);
  check(ordinal >= 0 && ordinal < count, "CUDA device ", ordinal, ": this machine has ", count,
        ", numbered from 0");
  driver.check(driver.cuDeviceGet(&handle_, ordinal), "cuDeviceGet", " of device ", ordinal);
  const auto attribute = [&](DeviceAttribute which) {
    int32_t value = 0;
    driver.check(driver.cuDeviceGetAttribute(&value, which, handle_), "cuDeviceGetAttribute", " ",
                 static_cast<int32_t>(which), " of device ", ordinal);
    return value;
  };
  char name[256] = "";
  driver.check(driver.cuDeviceGetName(name, sizeof(name), handle_), "cuDeviceGetName",
               " of device ", ordinal);
  size_t memory_bytes = 0;
  driver.check(driver.cuDeviceTotalMem_v2(&memory_bytes, handle_), "cuDeviceTotalMem_v2",
               " of device ", ordinal);
  info_.name = name;
  info_.kind = DeviceKind::kCuda;
  info_.num_cores = 0;
  info_.compute_capability = 10 * attribute(DeviceAttribute::kComputeCapabilityMajor) +
                             attribute(DeviceAttribute::kComputeCapabilityMinor);
  info_.num_sms = attribute(DeviceAttribute::kMultiprocessorCount);
  info_.shared_memory_bytes_per_block = attribute(DeviceAttribute::kMaxSharedMemoryPerBlockOptin);
  info_.memory_bytes = static_cast<int64_t>(memory_bytes);
  // Two transfers a clock, of bus width / 8 bytes each.
  info_.memory_bandwidth = 2e3 * attribute(DeviceAttribute::kMemoryClockRate) *
                           attribute(DeviceAttribute::kGlobalMemoryBusWidth) / 8;
}

Context::Context(const Device& device) : device_(device) {
  driver().check(driver().cuDevicePrimaryCtxRetain(&handle_, device_.handle()),
                 "cuDevicePrimaryCtxRetain", " of device ", device_.ordinal());
}

Context::~Context() {
  // Fails only when the driver is already gone, at the process's end.
  driver().cuDevicePrimaryCtxRelease_v2(device_.handle());
}

CurrentContext::CurrentContext(const Context& context) : driver_(context.driver()) {
  ContextHandle current = nullptr;
  driver_.check(driver_.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  if (current == context.handle()) return;
  driver_.check(driver_.cuCtxPushCurrent_v2(context.handle()), "cuCtxPushCurrent_v2", " of device ",
                context.device().ordinal());
  pushed_ = true;
}

CurrentContext::~CurrentContext() {
  ContextHandle popped = nullptr;
  if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
}

}  // namespace rapt::cuda
