#include "launch/driver.hpp"

#include <cstdlib>

namespace rapt::cuda {
namespace {

LibraryWanted wanted(const std::string& library) {
  return {
      {library},
      "needed for every CUDA device",
      "install NVIDIA's driver, version 520 or later (Debian: libcuda1), or use the device cpu"};
}

}  // namespace

Driver::Driver(const std::string& library_name) {
  const SharedLibrary library(wanted(library_name));
  path = library.path();
  library.find(cuInit, "cuInit");
  library.find(cuDriverGetVersion, "cuDriverGetVersion");
  library.find(cuGetErrorName, "cuGetErrorName");
  library.find(cuGetErrorString, "cuGetErrorString");
  library.find(cuDeviceGetCount, "cuDeviceGetCount");
  library.find(cuDeviceGet, "cuDeviceGet");
  library.find(cuDeviceGetName, "cuDeviceGetName");
  library.find(cuDeviceGetAttribute, "cuDeviceGetAttribute");
  library.find(cuDeviceTotalMem_v2, "cuDeviceTotalMem_v2");
  library.find(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  library.find(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease_v2");
  library.find(cuCtxGetCurrent, "cuCtxGetCurrent");
  library.find(cuCtxPushCurrent_v2, "cuCtxPushCurrent_v2");
  library.find(cuCtxPopCurrent_v2, "cuCtxPopCurrent_v2");
  library.find(cuModuleLoadData, "cuModuleLoadData");
  library.find(cuModuleUnload, "cuModuleUnload");
  library.find(cuModuleGetFunction, "cuModuleGetFunction");
  library.find(cuFuncGetAttribute, "cuFuncGetAttribute");
  library.find(cuFuncSetAttribute, "cuFuncSetAttribute");
  library.find(cuLaunchKernelEx, "cuLaunchKernelEx");
  library.find(cuMemAlloc_v2, "cuMemAlloc_v2");
  library.find(cuMemFree_v2, "cuMemFree_v2");
  library.find(cuMemHostAlloc, "cuMemHostAlloc");
  library.find(cuMemFreeHost, "cuMemFreeHost");
  library.find(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync_v2");
  library.find(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync_v2");
  library.find(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync_v2");
  library.find(cuMemsetD8Async, "cuMemsetD8Async");
  library.find(cuStreamGetCtx, "cuStreamGetCtx");
  library.find(cuStreamSynchronize, "cuStreamSynchronize");
  library.find(cuStreamWaitEvent, "cuStreamWaitEvent");
  library.find(cuStreamGetCaptureInfo_v2, "cuStreamGetCaptureInfo_v2");
  library.find(cuEventCreate, "cuEventCreate");
  library.find(cuEventDestroy_v2, "cuEventDestroy_v2");
  library.find(cuEventRecord, "cuEventRecord");
  library.find(cuEventQuery, "cuEventQuery");
  library.find_optional(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
  library.find_optional(cuFuncLoad, "cuFuncLoad");
  library.find_optional(cuFuncGetParamInfo, "cuFuncGetParamInfo");
  library.find_optional(cuGraphCreate, "cuGraphCreate");
  library.find_optional(cuGraphAddKernelNode_v2, "cuGraphAddKernelNode_v2");
  library.find_optional(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags");
  library.find_optional(cuGraphExecKernelNodeSetParams_v2, "cuGraphExecKernelNodeSetParams_v2");
  library.find_optional(cuGraphLaunch, "cuGraphLaunch");
  library.find_optional(cuGraphExecDestroy, "cuGraphExecDestroy");
  library.find_optional(cuGraphDestroy, "cuGraphDestroy");
  check(cuInit(0), "cuInit", " of ", path);
  check(cuDriverGetVersion(&version), "cuDriverGetVersion");
}

void Driver::fail(Result result, const char* call, const std::string& detail) const {
  // Both leave their output alone, or null it, for numbers that the driver does not know.
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  rapt::fail(result == kOutOfMemory ? ErrorCode::kOutOfMemory : ErrorCode::kDevice, call, detail,
             ": ", name ? name : "error", " (", result, "), ",
             text ? text : "which the driver has no text for");
}

const Driver& driver() {
  static const Driver loaded = [] {
    const char* library = std::getenv("RAPT_LIBCUDA");
    return library && *library ? Driver(library) : Driver();
  }();
  return loaded;
}

}  // namespace rapt::cuda
