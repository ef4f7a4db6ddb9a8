#include "fakes/libcuda.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <sstream>

namespace rapt::cuda {

struct ContextObject {
  int32_t ordinal;
};
struct ModuleObject {
  std::string kernel;
  std::vector<size_t> parameter_bytes;
};
struct FunctionObject {
  ModuleObject* module;
};
struct GraphObject {
  std::vector<fake::Launch> launches;  // a node is known by its number, from 1
};
struct GraphExecObject {
  std::vector<fake::Launch> launches;
};

namespace {

constexpr Result kInvalidContext = 201, kNotFound = 500, kInvalidDevice = 101;
constexpr int kNumDevices = 2;

struct Properties {
  const char* name;
  size_t bytes;
  int32_t major, minor, sms, shared, clock_khz, bus_bits;
};
// As cuDeviceGetAttribute reports them on these boards.
constexpr Properties kDevices[kNumDevices] = {
    {"NVIDIA H200", 150'109'880'320, 9, 0, 132, 232448, 3'201'000, 6144},
    {"NVIDIA A100-SXM4-80GB", 85'094'367'232, 8, 0, 108, 166912, 1'593'000, 5120}};

std::mutex mutex;
fake::Control control;
ContextObject contexts[kNumDevices] = {{0}, {1}};
thread_local std::vector<ContextObject*> current;
std::vector<std::unique_ptr<FunctionObject>> functions;

// Every call begins here: written down, and failed where that was asked for.
Result enter(const char* call, bool needs_context = false) {
  control.calls.emplace_back(call);
  if (const auto failure = control.failures.find(call); failure != control.failures.end())
    return failure->second;
  return needs_context && current.empty() ? kInvalidContext : kSuccess;
}

template <typename Act>
Result act(const char* call, bool needs_context, const Act& action) {
  const std::lock_guard lock(mutex);
  const Result result = enter(call, needs_context);
  return result == kSuccess ? action() : result;
}

// Whether [pointer, pointer + bytes) lies in one allocation.
bool owned(DevicePointer pointer, size_t bytes) {
  auto after = control.device_memory.upper_bound(pointer);
  if (after == control.device_memory.begin()) return false;
  const auto& [begin, length] = *--after;
  return pointer + bytes <= begin + length;
}
void* host(DevicePointer pointer) {
  return reinterpret_cast<void*>(pointer);
}

Result copy(const char* call, void* to, const void* from, size_t bytes, bool inside) {
  return act(call, true, [&] {
    if (!inside) return kInvalidValue;
    std::memcpy(to, from, bytes);
    return kSuccess;
  });
}

fake::Launch launch_of(const LaunchConfig& config, FunctionHandle function, void** parameters) {
  fake::Launch launch{function->module->kernel, config, {}, {}};
  launch.attributes.assign(config.attributes, config.attributes + config.num_attributes);
  launch.config.attributes = nullptr;
  for (size_t i = 0; i < function->module->parameter_bytes.size(); i++)
    launch.parameters.emplace_back(static_cast<const char*>(parameters[i]),
                                   function->module->parameter_bytes[i]);
  return launch;
}
[[maybe_unused]] fake::Launch launch_of(const KernelNodeParams& params) {
  return launch_of({params.grid_x, params.grid_y, params.grid_z, params.block_x, params.block_y,
                    params.block_z, params.shared_bytes, nullptr, nullptr, 0},
                   params.function, params.parameters);
}

}  // namespace

extern "C" {

fake::Control* rapt_fake_control() {
  return &control;
}
ContextHandle rapt_fake_primary_context(int32_t ordinal) {
  return &contexts[ordinal];
}

Result cuInit(uint32_t) {
  const std::lock_guard lock(mutex);
  const auto failures = control.failures;
  control = {};
  if (const auto failure = failures.find("cuInit"); failure != failures.end())
    return failure->second;
  current.clear();
  return kSuccess;
}
Result cuDriverGetVersion(int32_t* version) {
#ifdef FAKE_OLD_DRIVER
  *version = 11080;
#else
  *version = 13000;
#endif
  return kSuccess;
}
Result cuGetErrorName(Result result, const char** name) {
  *name = result == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  if (result < 999) return kSuccess;
  *name = nullptr;  // as for a number it does not know
  return kInvalidValue;
}
Result cuGetErrorString(Result result, const char** text) {
  *text = result == kOutOfMemory ? "out of memory" : "told to fail";
  if (result < 999) return kSuccess;
  *text = nullptr;
  return kInvalidValue;
}

Result cuDeviceGetCount(int32_t* count) {
  return act("cuDeviceGetCount", false, [&] { return *count = kNumDevices, kSuccess; });
}
Result cuDeviceGet(DeviceHandle* device, int32_t ordinal) {
  return act("cuDeviceGet", false, [&] {
    if (ordinal < 0 || ordinal >= kNumDevices) return kInvalidDevice;
    return *device = ordinal, kSuccess;
  });
}
Result cuDeviceGetName(char* name, int32_t bytes, DeviceHandle device) {
  return act("cuDeviceGetName", false, [&] {
    std::strncpy(name, kDevices[device].name, static_cast<size_t>(bytes));
    return kSuccess;
  });
}
Result cuDeviceGetAttribute(int32_t* value, DeviceAttribute attribute, DeviceHandle device) {
  return act("cuDeviceGetAttribute", false, [&] {
    const Properties& board = kDevices[device];
    const std::map<DeviceAttribute, int32_t> values = {
        {DeviceAttribute::kMultiprocessorCount, board.sms},
        {DeviceAttribute::kMemoryClockRate, board.clock_khz},
        {DeviceAttribute::kGlobalMemoryBusWidth, board.bus_bits},
        {DeviceAttribute::kComputeCapabilityMajor, board.major},
        {DeviceAttribute::kComputeCapabilityMinor, board.minor},
        {DeviceAttribute::kMaxSharedMemoryPerBlockOptin, board.shared}};
    const auto found = values.find(attribute);
    if (found == values.end()) return kInvalidValue;
    return *value = found->second, kSuccess;
  });
}
Result cuDeviceTotalMem_v2(size_t* bytes, DeviceHandle device) {
  return act("cuDeviceTotalMem_v2", false,
             [&] { return *bytes = kDevices[device].bytes, kSuccess; });
}

Result cuDevicePrimaryCtxRetain(ContextHandle* context, DeviceHandle device) {
  return act("cuDevicePrimaryCtxRetain", false, [&] {
    control.retained[static_cast<size_t>(device)]++;
    return *context = &contexts[device], kSuccess;
  });
}
Result cuDevicePrimaryCtxRelease_v2(DeviceHandle device) {
  return act("cuDevicePrimaryCtxRelease_v2", false,
             [&] { return control.retained[static_cast<size_t>(device)]--, kSuccess; });
}
Result cuCtxGetCurrent(ContextHandle* context) {
  return act("cuCtxGetCurrent", false,
             [&] { return *context = current.empty() ? nullptr : current.back(), kSuccess; });
}
Result cuCtxPushCurrent_v2(ContextHandle context) {
  return act("cuCtxPushCurrent_v2", false, [&] { return current.push_back(context), kSuccess; });
}
Result cuCtxPopCurrent_v2(ContextHandle* context) {
  return act("cuCtxPopCurrent_v2", true, [&] {
    *context = current.back();
    return current.pop_back(), kSuccess;
  });
}

Result cuModuleLoadData(ModuleHandle* module, const void* image) {
  return act("cuModuleLoadData", true, [&] {
    std::istringstream words(static_cast<const char*>(image));
    auto loaded = std::make_unique<ModuleObject>();
    std::string magic;
    if (!(words >> magic >> loaded->kernel) || magic != "cubin") return Result{209};  // no binary
    for (size_t bytes; words >> bytes;) loaded->parameter_bytes.push_back(bytes);
    control.num_modules++;
    return *module = loaded.release(), kSuccess;
  });
}
Result cuModuleUnload(ModuleHandle module) {
  return act("cuModuleUnload", true, [&] {
    delete module;
    return control.num_modules--, kSuccess;
  });
}
Result cuModuleGetFunction(FunctionHandle* function, ModuleHandle module, const char* name) {
  return act("cuModuleGetFunction", true, [&] {
    if (module->kernel != name) return kNotFound;
    functions.push_back(std::make_unique<FunctionObject>(FunctionObject{module}));
    return *function = functions.back().get(), kSuccess;
  });
}
Result cuFuncGetAttribute(int32_t* value, FunctionAttribute attribute, FunctionHandle) {
  return act("cuFuncGetAttribute", true, [&] {
    const std::map<FunctionAttribute, int32_t> values = {
        {FunctionAttribute::kMaxThreadsPerBlock, 384},
        {FunctionAttribute::kSharedSizeBytes, 128},
        {FunctionAttribute::kLocalSizeBytes, 24},
        {FunctionAttribute::kNumRegisters, 168}};
    const auto found = values.find(attribute);
    if (found == values.end()) return kInvalidValue;
    return *value = found->second, kSuccess;
  });
}
Result cuFuncSetAttribute(FunctionHandle, FunctionAttribute attribute, int32_t value) {
  return act("cuFuncSetAttribute", true, [&] {
    control.function_attributes[static_cast<int32_t>(attribute)] = value;
    return kSuccess;
  });
}
Result cuLaunchKernelEx(const LaunchConfig* config, FunctionHandle function, void** parameters,
                        void** extra) {
  return act("cuLaunchKernelEx", true, [&] {
    if (extra) return kInvalidValue;
    return control.launches.push_back(launch_of(*config, function, parameters)), kSuccess;
  });
}

Result cuMemAlloc_v2(DevicePointer* pointer, size_t bytes) {
  return act("cuMemAlloc_v2", true, [&] {
    void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(memory, 0xA5, bytes);
    *pointer = reinterpret_cast<DevicePointer>(memory);
    return control.device_memory[*pointer] = bytes, kSuccess;
  });
}
Result cuMemFree_v2(DevicePointer pointer) {
  return act("cuMemFree_v2", true, [&] {
    if (!control.device_memory.erase(pointer)) return kInvalidValue;
    return std::free(host(pointer)), kSuccess;
  });
}
Result cuMemHostAlloc(void** pointer, size_t bytes, uint32_t flags) {
  return act("cuMemHostAlloc", true, [&] {
    if (flags) return kInvalidValue;
    *pointer = std::malloc(bytes);
    return control.host_memory[*pointer] = bytes, kSuccess;
  });
}
Result cuMemFreeHost(void* pointer) {
  return act("cuMemFreeHost", true, [&] {
    if (!control.host_memory.erase(pointer)) return kInvalidValue;
    return std::free(pointer), kSuccess;
  });
}
Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, StreamHandle) {
  return copy("cuMemcpyHtoDAsync_v2", host(to), from, bytes, owned(to, bytes));
}
Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, StreamHandle) {
  return copy("cuMemcpyDtoHAsync_v2", to, host(from), bytes, owned(from, bytes));
}
Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, StreamHandle) {
  return copy("cuMemcpyDtoDAsync_v2", host(to), host(from), bytes,
              owned(to, bytes) && owned(from, bytes));
}
Result cuMemsetD8Async(DevicePointer to, uint8_t value, size_t bytes, StreamHandle) {
  return act("cuMemsetD8Async", true, [&] {
    if (!owned(to, bytes)) return kInvalidValue;
    return std::memset(host(to), value, bytes), kSuccess;
  });
}

Result cuStreamGetCtx(StreamHandle stream, ContextHandle* context) {
  return act("cuStreamGetCtx", false,
             [&] { return *context = reinterpret_cast<fake::Stream*>(stream)->context, kSuccess; });
}
Result cuStreamSynchronize(StreamHandle) {
  return act("cuStreamSynchronize", true, [] { return kSuccess; });
}
Result cuStreamWaitEvent(StreamHandle, EventHandle, uint32_t flags) {
  return act("cuStreamWaitEvent", true, [&] { return flags ? kInvalidValue : kSuccess; });
}
Result cuStreamGetCaptureInfo_v2(StreamHandle stream, CaptureStatus* status, uint64_t* id,
                                 void** graph, const void** dependencies, size_t* count) {
  return act("cuStreamGetCaptureInfo_v2", true, [&] {
    if (graph || dependencies || count) return kInvalidValue;
    const auto* asked = reinterpret_cast<const fake::Stream*>(stream);
    *status = asked ? asked->capture : CaptureStatus::kNone;
    if (*status != CaptureStatus::kNone) *id = asked->capture_id;
    return kSuccess;
  });
}
Result cuEventCreate(EventHandle* event, uint32_t flags) {
  return act("cuEventCreate", true, [&] {
    if (flags != kEventDisableTiming) return kInvalidValue;
    auto made = std::make_unique<fake::Event>();
    *event = reinterpret_cast<EventHandle>(made.get());
    return control.events.push_back(std::move(made)), kSuccess;
  });
}
Result cuEventDestroy_v2(EventHandle event) {
  return act("cuEventDestroy_v2", true, [&] {
    const size_t erased = std::erase_if(control.events, [&](const auto& its) {
      return its.get() == reinterpret_cast<fake::Event*>(event);
    });
    return erased ? kSuccess : kInvalidValue;
  });
}
Result cuEventRecord(EventHandle, StreamHandle) {
  return act("cuEventRecord", true, [] { return kSuccess; });
}
Result cuEventQuery(EventHandle event) {
  return act("cuEventQuery", false,
             [&] { return reinterpret_cast<const fake::Event*>(event)->state; });
}

#ifndef FAKE_OLD_DRIVER
Result cuGraphCreate(GraphHandle* graph, uint32_t flags) {
  return act("cuGraphCreate", true, [&] {
    if (flags) return kInvalidValue;
    control.num_graphs++;
    return *graph = new GraphObject, kSuccess;
  });
}
Result cuGraphAddKernelNode_v2(GraphNodeHandle* node, GraphHandle graph,
                               const GraphNodeHandle* after, size_t num_after,
                               const KernelNodeParams* params) {
  return act("cuGraphAddKernelNode_v2", true, [&] {
    const size_t before = graph->launches.size();
    // A chain: each after the one before it.
    if (num_after != (before > 0) || (before && reinterpret_cast<uintptr_t>(*after) != before))
      return kInvalidValue;
    graph->launches.push_back(launch_of(*params));
    return *node = reinterpret_cast<GraphNodeHandle>(before + 1), kSuccess;
  });
}
Result cuGraphInstantiateWithFlags(GraphExecHandle* exec, GraphHandle graph, uint64_t flags) {
  return act("cuGraphInstantiateWithFlags", true, [&] {
    if (flags) return kInvalidValue;
    control.num_graphs++;
    return *exec = new GraphExecObject{graph->launches}, kSuccess;
  });
}
Result cuGraphExecKernelNodeSetParams_v2(GraphExecHandle exec, GraphNodeHandle node,
                                         const KernelNodeParams* params) {
  return act("cuGraphExecKernelNodeSetParams_v2", true, [&] {
    const auto number = reinterpret_cast<uintptr_t>(node);
    if (number < 1 || number > exec->launches.size()) return kInvalidValue;
    return exec->launches[number - 1] = launch_of(*params), kSuccess;
  });
}
Result cuGraphLaunch(GraphExecHandle exec, StreamHandle stream) {
  return act("cuGraphLaunch", true, [&] {
    for (fake::Launch launch : exec->launches) {
      launch.config.stream = stream;
      control.launches.push_back(std::move(launch));
    }
    return kSuccess;
  });
}
Result cuGraphExecDestroy(GraphExecHandle exec) {
  return act("cuGraphExecDestroy", true, [&] {
    control.num_graphs--;
    return delete exec, kSuccess;
  });
}
Result cuGraphDestroy(GraphHandle graph) {
  return act("cuGraphDestroy", true, [&] {
    control.num_graphs--;
    return delete graph, kSuccess;
  });
}
Result cuTensorMapEncodeTiled(TensorMap* map, TensorMapType type, uint32_t rank, void* address,
                              const uint64_t* sizes, const uint64_t* stride_bytes,
                              const uint32_t* box, const uint32_t* element_strides,
                              TensorMapInterleave interleave, TensorMapSwizzle swizzle,
                              TensorMapL2Promotion promotion, TensorMapFill fill) {
  return act("cuTensorMapEncodeTiled", false, [&] {
    control.tensor_map = {static_cast<uint64_t>(type),
                          rank,
                          reinterpret_cast<uint64_t>(address),
                          sizes[0],
                          sizes[rank - 1],
                          stride_bytes[0],
                          rank > 1 ? stride_bytes[rank - 2] : 0,
                          box[0],
                          box[rank - 1],
                          element_strides[0],
                          element_strides[rank - 1],
                          static_cast<uint64_t>(interleave),
                          static_cast<uint64_t>(swizzle),
                          static_cast<uint64_t>(promotion),
                          static_cast<uint64_t>(fill)};
    std::memcpy(map, control.tensor_map.data(), sizeof(*map));
    return kSuccess;
  });
}
Result cuFuncLoad(FunctionHandle) {
  return act("cuFuncLoad", true, [] { return kSuccess; });
}
Result cuFuncGetParamInfo(FunctionHandle function, size_t index, size_t* offset, size_t* bytes) {
  return act("cuFuncGetParamInfo", true, [&] {
    if (index >= function->module->parameter_bytes.size()) return kInvalidValue;
    *offset = 0;
    return *bytes = function->module->parameter_bytes[index], kSuccess;
  });
}
#endif

}  // extern "C"
}  // namespace rapt::cuda
