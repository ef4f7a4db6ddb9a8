// The part of libcuda's binary interface that Rapt calls, declared here: the interface is frozen by
// NVIDIA, so a build needs no toolkit and a binary runs with any driver. Where a toolkit is found,
// tests compare every size, offset, number and signature with its cuda.h.
// Names of fields and numbers follow "CUDA Driver API", section "Data types used by CUDA driver".
#pragma once

#include <cstddef>
#include <cstdint>

namespace rapt::cuda {

// CUresult. Only what is asked for by number; texts come from the driver.
using Result = int32_t;
constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotReady = 600;

using DeviceHandle = int32_t;
using ContextHandle = struct ContextObject*;
using ModuleHandle = struct ModuleObject*;
using FunctionHandle = struct FunctionObject*;
using StreamHandle = struct StreamObject*;  // null: the legacy default stream
using EventHandle = struct EventObject*;
using GraphHandle = struct GraphObject*;
using GraphNodeHandle = struct GraphNodeObject*;
using GraphExecHandle = struct GraphExecObject*;
using DevicePointer = uint64_t;

enum class DeviceAttribute : int32_t {
  kMultiprocessorCount = 16,
  kMemoryClockRate = 36,       // kHz
  kGlobalMemoryBusWidth = 37,  // bits
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerBlockOptin = 97,
};

enum class FunctionAttribute : int32_t {
  kMaxThreadsPerBlock = 0,
  kSharedSizeBytes = 1,  // static
  kLocalSizeBytes = 3,   // of a thread: stack and spills
  kNumRegisters = 4,
  kMaxDynamicSharedSizeBytes = 8,
  kNonPortableClusterSizeAllowed = 14,
};

enum class LaunchAttributeId : int32_t {
  kClusterDimension = 4,
  kProgrammaticStreamSerialization = 6,
};

struct LaunchAttribute {
  LaunchAttributeId id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      uint32_t x, y, z;
    } cluster;
    int32_t programmatic_stream_serialization_allowed;
  } value;
};

struct LaunchConfig {
  uint32_t grid_x, grid_y, grid_z;
  uint32_t block_x, block_y, block_z;
  uint32_t shared_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  uint32_t num_attributes;
};

// CUDA_KERNEL_NODE_PARAMS_v2.
struct KernelNodeParams {
  FunctionHandle function;
  uint32_t grid_x, grid_y, grid_z;
  uint32_t block_x, block_y, block_z;
  uint32_t shared_bytes;
  void** parameters;
  void** extra;
  void* kernel;           // in place of `function`
  ContextHandle context;  // null: the current one
};

constexpr uint32_t kEventDisableTiming = 2;

enum class CaptureStatus : int32_t { kNone = 0, kActive = 1, kInvalidated = 2 };

// A tensor map, opaque: kernels take it as a parameter (64-byte aligned) or from memory.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

enum class TensorMapType : int32_t {
  kUInt8 = 0,
  kInt32 = 3,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kBFloat16 = 9,
};
enum class TensorMapInterleave : int32_t { kNone = 0 };
enum class TensorMapSwizzle : int32_t { kNone = 0, k32Bytes = 1, k64Bytes = 2, k128Bytes = 3 };
enum class TensorMapL2Promotion : int32_t { kNone = 0, k64Bytes = 1, k128Bytes = 2, k256Bytes = 3 };
enum class TensorMapFill : int32_t { kZeros = 0 };

}  // namespace rapt::cuda
