// What launch/driver_abi.hpp declares, against the toolkit's own header and library.
#define __CUDA_API_VERSION_INTERNAL  // declares superseded functions too
#include <cuda.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "launch/driver.hpp"

namespace rapt::cuda {
namespace {

// Two types travel alike: both addresses, or numbers of one size.
template <typename A, typename B>
constexpr bool same_value = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <typename A, typename B>
struct SameCall : std::false_type {};
template <typename A, typename... As, typename B, typename... Bs>
struct SameCall<A (*)(As...), B (*)(Bs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(As) != sizeof...(Bs))
      return false;
    else
      return same_value<A, B> && (same_value<As, Bs> && ...);
  }();
};

#define SAME_CALL(name) static_assert(SameCall<decltype(Driver::name), decltype(&::name)>::value)
SAME_CALL(cuInit);
SAME_CALL(cuDriverGetVersion);
SAME_CALL(cuGetErrorName);
SAME_CALL(cuGetErrorString);
SAME_CALL(cuDeviceGetCount);
SAME_CALL(cuDeviceGet);
SAME_CALL(cuDeviceGetName);
SAME_CALL(cuDeviceGetAttribute);
SAME_CALL(cuDeviceTotalMem_v2);
SAME_CALL(cuDevicePrimaryCtxRetain);
SAME_CALL(cuDevicePrimaryCtxRelease_v2);
SAME_CALL(cuCtxGetCurrent);
SAME_CALL(cuCtxPushCurrent_v2);
SAME_CALL(cuCtxPopCurrent_v2);
SAME_CALL(cuModuleLoadData);
SAME_CALL(cuModuleUnload);
SAME_CALL(cuModuleGetFunction);
SAME_CALL(cuFuncGetAttribute);
SAME_CALL(cuFuncSetAttribute);
SAME_CALL(cuLaunchKernelEx);
SAME_CALL(cuMemAlloc_v2);
SAME_CALL(cuMemFree_v2);
SAME_CALL(cuMemHostAlloc);
SAME_CALL(cuMemFreeHost);
SAME_CALL(cuMemcpyHtoDAsync_v2);
SAME_CALL(cuMemcpyDtoHAsync_v2);
SAME_CALL(cuMemcpyDtoDAsync_v2);
SAME_CALL(cuMemsetD8Async);
SAME_CALL(cuStreamGetCtx);
SAME_CALL(cuStreamSynchronize);
SAME_CALL(cuStreamWaitEvent);
SAME_CALL(cuStreamGetCaptureInfo_v2);
SAME_CALL(cuEventCreate);
SAME_CALL(cuEventDestroy_v2);
SAME_CALL(cuEventRecord);
SAME_CALL(cuEventQuery);
SAME_CALL(cuTensorMapEncodeTiled);
SAME_CALL(cuFuncLoad);
SAME_CALL(cuFuncGetParamInfo);
SAME_CALL(cuGraphCreate);
SAME_CALL(cuGraphAddKernelNode_v2);
SAME_CALL(cuGraphInstantiateWithFlags);
SAME_CALL(cuGraphExecKernelNodeSetParams_v2);
SAME_CALL(cuGraphLaunch);
SAME_CALL(cuGraphExecDestroy);
SAME_CALL(cuGraphDestroy);
#undef SAME_CALL

template <typename Ours, typename Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int64_t>(ours) == static_cast<int64_t>(theirs);
}
static_assert(same(kSuccess, CUDA_SUCCESS) && same(kInvalidValue, CUDA_ERROR_INVALID_VALUE));
static_assert(same(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(same(kNotReady, CUDA_ERROR_NOT_READY));

using Device = DeviceAttribute;
static_assert(same(Device::kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(same(Device::kMemoryClockRate, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE));
static_assert(same(Device::kGlobalMemoryBusWidth, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
static_assert(same(Device::kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(same(Device::kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(same(Device::kMaxSharedMemoryPerBlockOptin,
                   CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));

using Function = FunctionAttribute;
static_assert(same(Function::kMaxThreadsPerBlock, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
static_assert(same(Function::kSharedSizeBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
static_assert(same(Function::kLocalSizeBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
static_assert(same(Function::kNumRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS));
static_assert(same(Function::kMaxDynamicSharedSizeBytes,
                   CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
static_assert(same(Function::kNonPortableClusterSizeAllowed,
                   CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED));

using Launch = LaunchAttributeId;
static_assert(same(Launch::kClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION));
static_assert(same(Launch::kProgrammaticStreamSerialization,
                   CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, grid_x) == offsetof(CUlaunchConfig, gridDimX));
static_assert(offsetof(LaunchConfig, block_x) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, num_attributes) == offsetof(CUlaunchConfig, numAttrs));

static_assert(sizeof(KernelNodeParams) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
static_assert(offsetof(KernelNodeParams, grid_x) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, gridDimX));
static_assert(offsetof(KernelNodeParams, block_x) ==
              offsetof(CUDA_KERNEL_NODE_PARAMS_v2, blockDimX));
static_assert(offsetof(KernelNodeParams, shared_bytes) ==
              offsetof(CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes));
static_assert(offsetof(KernelNodeParams, parameters) ==
              offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kernelParams));
static_assert(offsetof(KernelNodeParams, kernel) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kern));
static_assert(offsetof(KernelNodeParams, context) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, ctx));

static_assert(same(kEventDisableTiming, CU_EVENT_DISABLE_TIMING));

static_assert(same(CaptureStatus::kNone, CU_STREAM_CAPTURE_STATUS_NONE));
static_assert(same(CaptureStatus::kActive, CU_STREAM_CAPTURE_STATUS_ACTIVE));
static_assert(same(CaptureStatus::kInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED));

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
static_assert(alignof(TensorMap) == 64);
static_assert(same(TensorMapType::kUInt8, CU_TENSOR_MAP_DATA_TYPE_UINT8));
static_assert(same(TensorMapType::kInt32, CU_TENSOR_MAP_DATA_TYPE_INT32));
static_assert(same(TensorMapType::kInt64, CU_TENSOR_MAP_DATA_TYPE_INT64));
static_assert(same(TensorMapType::kFloat16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16));
static_assert(same(TensorMapType::kFloat32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32));
static_assert(same(TensorMapType::kBFloat16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16));
static_assert(same(TensorMapInterleave::kNone, CU_TENSOR_MAP_INTERLEAVE_NONE));
static_assert(same(TensorMapSwizzle::kNone, CU_TENSOR_MAP_SWIZZLE_NONE));
static_assert(same(TensorMapSwizzle::k32Bytes, CU_TENSOR_MAP_SWIZZLE_32B));
static_assert(same(TensorMapSwizzle::k64Bytes, CU_TENSOR_MAP_SWIZZLE_64B));
static_assert(same(TensorMapSwizzle::k128Bytes, CU_TENSOR_MAP_SWIZZLE_128B));
static_assert(same(TensorMapL2Promotion::kNone, CU_TENSOR_MAP_L2_PROMOTION_NONE));
static_assert(same(TensorMapL2Promotion::k64Bytes, CU_TENSOR_MAP_L2_PROMOTION_L2_64B));
static_assert(same(TensorMapL2Promotion::k128Bytes, CU_TENSOR_MAP_L2_PROMOTION_L2_128B));
static_assert(same(TensorMapL2Promotion::k256Bytes, CU_TENSOR_MAP_L2_PROMOTION_L2_256B));
static_assert(same(TensorMapFill::kZeros, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));

// Where values of a union lie is not in offsetof's reach.
TEST(DriverAbi, launch_attributes_have_the_headers_bytes) {
  CUlaunchAttribute theirs = {};
  theirs.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  theirs.value.clusterDim = {2, 3, 4};
  LaunchAttribute ours = {};
  ours.id = LaunchAttributeId::kClusterDimension;
  ours.value.cluster = {2, 3, 4};
  EXPECT_EQ(memcmp(&ours, &theirs, sizeof(ours)), 0);
  theirs = {}, ours = {};
  theirs.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  theirs.value.programmaticStreamSerializationAllowed = 1;
  ours.id = LaunchAttributeId::kProgrammaticStreamSerialization;
  ours.value.programmatic_stream_serialization_allowed = 1;
  EXPECT_EQ(memcmp(&ours, &theirs, sizeof(ours)), 0);
}

// The stub exports what a driver does, and answers every call with an error: no symbol is missing,
// and the error is the stub's own.
TEST(DriverAbi, every_function_is_in_the_toolkits_library) {
  try {
    Driver{CUDA_STUB};
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice) << error.what();
    EXPECT_NE(std::string(error.what()).find("(34)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace rapt::cuda
