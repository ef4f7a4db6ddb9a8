#include "llm/cuda/driver.hpp"

#include "llm/cuda/shared_library.hpp"
#include "llm/model/failure.hpp"

namespace llm::cuda {
namespace {

constexpr Result kSuccess = 0, kOutOfMemory = 2;

}  // namespace

Driver::Driver() {
  const SharedLibrary library(
      {.named_by = "RAPT_LIBCUDA",
       .names = {"libcuda.so.1"},
       .purpose = "needed for every CUDA device",
       .remedy = "install NVIDIA's driver, version 520 or later (Debian: libcuda1), or use the "
                 "device cpu"});
  library.find(cuGetErrorName, "cuGetErrorName");
  library.find(cuGetErrorString, "cuGetErrorString");
  library.find(cuDeviceGet, "cuDeviceGet");
  library.find(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  library.find(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease_v2");
  library.find(cuCtxPushCurrent_v2, "cuCtxPushCurrent_v2");
  library.find(cuCtxPopCurrent_v2, "cuCtxPopCurrent_v2");
  library.find(cuModuleLoadData, "cuModuleLoadData");
  library.find(cuModuleUnload, "cuModuleUnload");
  library.find(cuModuleGetFunction, "cuModuleGetFunction");
  library.find(cuLaunchKernelEx, "cuLaunchKernelEx");
  library.find(cuMemHostAlloc, "cuMemHostAlloc");
  library.find(cuMemFreeHost, "cuMemFreeHost");
  library.find(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync_v2");
  library.find(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync_v2");
  library.find(cuStreamSynchronize, "cuStreamSynchronize");
}

void Driver::check(Result result, const char* call) const {
  if (result == kSuccess) [[likely]]
    return;
  // Both null their output for numbers that the driver does not know.
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  fail(result == kOutOfMemory ? rapt::ErrorCode::kOutOfMemory : rapt::ErrorCode::kDevice, call,
       ": ", name ? name : "error", " (", result, "), ",
       text ? text : "which the driver has no text for");
}

Context::Context(int32_t ordinal) {
  driver_.check(driver_.cuDeviceGet(&device_, ordinal), "cuDeviceGet");
  driver_.check(driver_.cuDevicePrimaryCtxRetain(&handle_, device_), "cuDevicePrimaryCtxRetain");
}

Context::~Context() {
  driver_.cuDevicePrimaryCtxRelease_v2(device_);
}

CurrentContext::CurrentContext(const Context& context) : driver_(context.driver()) {
  driver_.check(driver_.cuCtxPushCurrent_v2(context.handle()), "cuCtxPushCurrent");
}

CurrentContext::~CurrentContext() {
  ContextHandle popped = nullptr;
  driver_.cuCtxPopCurrent_v2(&popped);
}

PinnedBuffer::PinnedBuffer(const Context& context, int64_t bytes) : bytes_(bytes) {
  const CurrentContext current(context);
  const Driver& driver = context.driver();
  void* data = nullptr;
  driver.check(driver.cuMemHostAlloc(&data, static_cast<size_t>(bytes), 0), "cuMemHostAlloc");
  data_ = {static_cast<std::byte*>(data), Free{&context}};
}

void PinnedBuffer::Free::operator()(std::byte* data) const {
  try {
    const CurrentContext current(*context);
    context->driver().cuMemFreeHost(data);
  } catch (const rapt::Error&) {  // the driver is gone, and its memory with it
  }
}

Module::Module(const Context& context, const std::string& image) : context_(context) {
  const CurrentContext current(context);
  const Driver& driver = context.driver();
  driver.check(driver.cuModuleLoadData(&handle_, image.data()), "cuModuleLoadData");
}

Module::~Module() {
  try {
    const CurrentContext current(context_);
    context_.driver().cuModuleUnload(handle_);
  } catch (const rapt::Error&) {  // the driver is gone, and the module with it
  }
}

FunctionHandle Module::function(const char* name) const {
  const CurrentContext current(context_);
  const Driver& driver = context_.driver();
  FunctionHandle function = nullptr;
  driver.check(driver.cuModuleGetFunction(&function, handle_, name), name);
  return function;
}

void Module::launch(FunctionHandle function, int64_t num_blocks, int32_t num_threads,
                    int32_t shared_bytes, const void* const* arguments) const {
  const LaunchConfig config = {static_cast<uint32_t>(num_blocks),
                               1,
                               1,
                               static_cast<uint32_t>(num_threads),
                               1,
                               1,
                               static_cast<uint32_t>(shared_bytes),
                               nullptr,
                               nullptr,
                               0};
  const Driver& driver = context_.driver();
  // The driver only reads them.
  driver.check(driver.cuLaunchKernelEx(&config, function, const_cast<void**>(arguments), nullptr),
               "cuLaunchKernelEx");
}

}  // namespace llm::cuda
