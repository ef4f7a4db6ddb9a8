// The CUDA driver as a table of its functions, loaded at run time.
#pragma once

#include <string>

#include "core/shared_library.hpp"
#include "launch/driver_abi.hpp"

namespace rapt::cuda {

// Members are named as the driver exports them: the version in the name is what their signature
// belongs to. All others are members of the same name in the "CUDA Driver API" manual.
struct Driver {
  // Loads the library and calls cuInit. Throws Error(kMissingLibrary) where it cannot be loaded or
  // lacks a function that every supported driver has, Error(kDevice) where cuInit fails.
  explicit Driver(const std::string& library = "libcuda.so.1");

  // Throws for any result but success: Error(kOutOfMemory) for that, else Error(kDevice), naming
  // the call, `detail`, and the driver's name and text of the result. Formats only then.
  template <typename... Parts>
  void check(Result result, const char* call, const Parts&... detail) const {
    if (result != kSuccess) [[unlikely]]
      fail(result, call, concat(detail...));
  }

  std::string path;     // of the library
  int32_t version = 0;  // 1000 * major + 10 * minor, of the newest CUDA the driver speaks

  Result (*cuInit)(uint32_t flags);
  Result (*cuDriverGetVersion)(int32_t* version);
  Result (*cuGetErrorName)(Result result, const char** name);
  Result (*cuGetErrorString)(Result result, const char** text);

  Result (*cuDeviceGetCount)(int32_t* count);
  Result (*cuDeviceGet)(DeviceHandle* device, int32_t ordinal);
  Result (*cuDeviceGetName)(char* name, int32_t bytes, DeviceHandle device);
  Result (*cuDeviceGetAttribute)(int32_t* value, DeviceAttribute attribute, DeviceHandle device);
  Result (*cuDeviceTotalMem_v2)(size_t* bytes, DeviceHandle device);

  Result (*cuDevicePrimaryCtxRetain)(ContextHandle* context, DeviceHandle device);
  Result (*cuDevicePrimaryCtxRelease_v2)(DeviceHandle device);
  Result (*cuCtxGetCurrent)(ContextHandle* context);
  Result (*cuCtxPushCurrent_v2)(ContextHandle context);
  Result (*cuCtxPopCurrent_v2)(ContextHandle* context);

  Result (*cuModuleLoadData)(ModuleHandle* module, const void* image);
  Result (*cuModuleUnload)(ModuleHandle module);
  Result (*cuModuleGetFunction)(FunctionHandle* function, ModuleHandle module, const char* name);
  Result (*cuFuncGetAttribute)(int32_t* value, FunctionAttribute attribute,
                               FunctionHandle function);
  Result (*cuFuncSetAttribute)(FunctionHandle function, FunctionAttribute attribute, int32_t value);
  Result (*cuLaunchKernelEx)(const LaunchConfig* config, FunctionHandle function, void** parameters,
                             void** extra);

  Result (*cuMemAlloc_v2)(DevicePointer* pointer, size_t bytes);
  Result (*cuMemFree_v2)(DevicePointer pointer);
  Result (*cuMemHostAlloc)(void** pointer, size_t bytes, uint32_t flags);
  Result (*cuMemFreeHost)(void* pointer);
  Result (*cuMemcpyHtoDAsync_v2)(DevicePointer to, const void* from, size_t bytes,
                                 StreamHandle stream);
  Result (*cuMemcpyDtoHAsync_v2)(void* to, DevicePointer from, size_t bytes, StreamHandle stream);
  Result (*cuMemcpyDtoDAsync_v2)(DevicePointer to, DevicePointer from, size_t bytes,
                                 StreamHandle stream);
  Result (*cuMemsetD8Async)(DevicePointer to, uint8_t value, size_t bytes, StreamHandle stream);

  Result (*cuStreamGetCtx)(StreamHandle stream, ContextHandle* context);
  Result (*cuStreamSynchronize)(StreamHandle stream);
  Result (*cuStreamWaitEvent)(StreamHandle stream, EventHandle event, uint32_t flags);
  Result (*cuStreamGetCaptureInfo_v2)(StreamHandle stream, CaptureStatus* status, uint64_t* id,
                                      void** graph, const void** dependencies,
                                      size_t* num_dependencies);
  Result (*cuEventCreate)(EventHandle* event, uint32_t flags);
  Result (*cuEventDestroy_v2)(EventHandle event);
  Result (*cuEventRecord)(EventHandle event, StreamHandle stream);
  Result (*cuEventQuery)(EventHandle event);

  // Null in drivers older than the CUDA version named.
  Result (*cuTensorMapEncodeTiled)(TensorMap* map, TensorMapType type, uint32_t rank, void* address,
                                   const uint64_t* sizes, const uint64_t* stride_bytes,
                                   const uint32_t* box, const uint32_t* element_strides,
                                   TensorMapInterleave interleave, TensorMapSwizzle swizzle,
                                   TensorMapL2Promotion promotion, TensorMapFill fill);  // 12.0
  Result (*cuFuncLoad)(FunctionHandle function);                                         // 12.4
  Result (*cuFuncGetParamInfo)(FunctionHandle function, size_t index, size_t* offset,
                               size_t* bytes);                                       // 12.4
  Result (*cuGraphCreate)(GraphHandle* graph, uint32_t flags);                       // 12.0, as
  Result (*cuGraphAddKernelNode_v2)(GraphNodeHandle* node, GraphHandle graph,        // those
                                    const GraphNodeHandle* after, size_t num_after,  // below
                                    const KernelNodeParams* params);
  Result (*cuGraphInstantiateWithFlags)(GraphExecHandle* exec, GraphHandle graph, uint64_t flags);
  Result (*cuGraphExecKernelNodeSetParams_v2)(GraphExecHandle exec, GraphNodeHandle node,
                                              const KernelNodeParams* params);
  Result (*cuGraphLaunch)(GraphExecHandle exec, StreamHandle stream);
  Result (*cuGraphExecDestroy)(GraphExecHandle exec);
  Result (*cuGraphDestroy)(GraphHandle graph);

 private:
  [[noreturn]] void fail(Result result, const char* call, const std::string& detail) const;
};

// The process's driver, loaded at the first call; a call that throws is made again at the next.
// The environment variable RAPT_LIBCUDA names another library file in place of libcuda.so.1: it is
// for tests, which have no device.
const Driver& driver();

}  // namespace rapt::cuda
