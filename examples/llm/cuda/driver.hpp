// The few functions of libcuda that the dense layers need beside Rapt's own buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace llm::cuda {

using Result = int32_t;
using DevicePointer = uint64_t;
using ContextHandle = struct ContextObject*;
using ModuleHandle = struct ModuleObject*;
using FunctionHandle = struct FunctionObject*;
using StreamHandle = struct StreamObject*;  // null: the default stream, which Rapt's is by default

// CUlaunchConfig, "CUDA Driver API".
struct LaunchConfig {
  uint32_t grid_x, grid_y, grid_z;
  uint32_t block_x, block_y, block_z;
  uint32_t shared_bytes;
  StreamHandle stream;
  void* attributes;
  uint32_t num_attributes;
};

// Members are named as the library exports them.
struct Driver {
  // Throws rapt::Error(kMissingLibrary). The environment variable RAPT_LIBCUDA names another file
  // in place of libcuda.so.1, as it does for Rapt itself, whose contexts have initialised it.
  Driver();

  // Throws rapt::Error(kOutOfMemory) for that, rapt::Error(kDevice) for any other failure.
  void check(Result result, const char* call) const;

  Result (*cuGetErrorName)(Result result, const char** name);
  Result (*cuGetErrorString)(Result result, const char** text);
  Result (*cuDeviceGet)(int32_t* device, int32_t ordinal);
  Result (*cuDevicePrimaryCtxRetain)(ContextHandle* context, int32_t device);
  Result (*cuDevicePrimaryCtxRelease_v2)(int32_t device);
  Result (*cuCtxPushCurrent_v2)(ContextHandle context);
  Result (*cuCtxPopCurrent_v2)(ContextHandle* context);
  Result (*cuModuleLoadData)(ModuleHandle* module, const void* image);
  Result (*cuModuleUnload)(ModuleHandle module);
  Result (*cuModuleGetFunction)(FunctionHandle* function, ModuleHandle module, const char* name);
  Result (*cuLaunchKernelEx)(const LaunchConfig* config, FunctionHandle function, void** parameters,
                             void** extra);
  Result (*cuMemHostAlloc)(void** pointer, size_t bytes, uint32_t flags);
  Result (*cuMemFreeHost)(void* pointer);
  Result (*cuMemcpyHtoDAsync_v2)(DevicePointer to, const void* from, size_t bytes,
                                 StreamHandle stream);
  Result (*cuMemcpyDtoHAsync_v2)(void* to, DevicePointer from, size_t bytes, StreamHandle stream);
  Result (*cuStreamSynchronize)(StreamHandle stream);
};

// The primary context of a device, which Rapt's and cuBLASLt's work is in as well.
class Context {
 public:
  explicit Context(int32_t ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return driver_; }
  ContextHandle handle() const { return handle_; }

 private:
  Driver driver_;
  int32_t device_ = 0;
  ContextHandle handle_ = nullptr;
};

// Makes a context the calling thread's current one while it lives: copies, launches and cuBLASLt's
// calls need that.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
};

// Page-locked memory of the host, so that copies are asynchronous. The context must outlive it.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const Context& context, int64_t bytes);

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    const Context* context;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_{nullptr, Free{nullptr}};
  int64_t bytes_ = 0;
};

// A cubin on the device. The context must outlive it.
class Module {
 public:
  Module(const Context& context, const std::string& image);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  FunctionHandle function(const char* name) const;
  // `arguments` point to the kernel's parameters in their order. On the default stream.
  void launch(FunctionHandle function, int64_t num_blocks, int32_t num_threads,
              int32_t shared_bytes, const void* const* arguments) const;

 private:
  const Context& context_;
  ModuleHandle handle_ = nullptr;
};

}  // namespace llm::cuda
