#include "launch/kernel.hpp"

namespace rapt::cuda {
namespace {

// Of which more than 8 must be allowed, kernel by kernel.
constexpr int64_t kMaxClusterBlocks = 16;
// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr Dim3 kMaxGrid = {0x7fffffff, 65535, 65535};
constexpr Dim3 kMaxBlock = {1024, 1024, 64};
// Clusters and overlapping launches came with it.
constexpr int32_t kHopper = 90;

int64_t volume(const Dim3& dim) {
  return static_cast<int64_t>(dim.x) * dim.y * dim.z;
}

std::string text(const Dim3& dim) {
  return concat("{", dim.x, ", ", dim.y, ", ", dim.z, "}");
}

bool within(const Dim3& dim, const Dim3& most) {
  return dim.x - 1 < most.x && dim.y - 1 < most.y && dim.z - 1 < most.z;  // 0 wraps
}

void check_dim(const std::string& kernel, const char* what, const Dim3& dim, const Dim3& most) {
  if (!within(dim, most)) [[unlikely]]
    fail(ErrorCode::kInvalidArgument, "kernel ", kernel, ": ", what, " is ", text(dim),
         ", must be from {1, 1, 1} to ", text(most));
}

}  // namespace

Module::Module(const Context& context, const void* image, size_t bytes) : context_(context) {
  const CurrentContext current(context);
  const Driver& driver = context.driver();
  driver.check(driver.cuModuleLoadData(&handle_, image), "cuModuleLoadData", " of ", bytes,
               " bytes on device ", context.device().ordinal(), " (compute capability ",
               context.device().info().compute_capability, ", driver for CUDA ",
               driver.version / 1000, ".", driver.version % 1000 / 10, ")");
}

Module::~Module() {
  try {
    const CurrentContext current(context_);
    context_.driver().cuModuleUnload(handle_);
  } catch (const Error&) {  // the driver is gone, and the module with it
  }
}

Kernel::Kernel(const Module& module, const std::string& name, int32_t max_dynamic_shared_bytes)
    : driver_(&module.context().driver()),
      name_(name),
      max_dynamic_shared_bytes_(max_dynamic_shared_bytes) {
  const Driver& driver = *driver_;
  const DeviceInfo& device = module.context().device().info();
  const CurrentContext current(module.context());
  driver.check(driver.cuModuleGetFunction(&function_, module.handle(), name.c_str()),
               "cuModuleGetFunction", " of ", name);
  // Modules load lazily; a launch must not be the moment.
  if (driver.cuFuncLoad) driver.check(driver.cuFuncLoad(function_), "cuFuncLoad", " of ", name);
  const auto attribute = [&](FunctionAttribute which) {
    int32_t value = 0;
    driver.check(driver.cuFuncGetAttribute(&value, which, function_), "cuFuncGetAttribute", " ",
                 static_cast<int32_t>(which), " of ", name);
    return value;
  };
  const auto allow = [&](FunctionAttribute which, int32_t value) {
    driver.check(driver.cuFuncSetAttribute(function_, which, value), "cuFuncSetAttribute", " ",
                 static_cast<int32_t>(which), " of ", name, " to ", value);
  };
  num_registers_ = attribute(FunctionAttribute::kNumRegisters);
  local_bytes_ = attribute(FunctionAttribute::kLocalSizeBytes);
  static_shared_bytes_ = attribute(FunctionAttribute::kSharedSizeBytes);
  max_threads_per_block_ = attribute(FunctionAttribute::kMaxThreadsPerBlock);
  const int64_t most = device.shared_memory_bytes_per_block - static_shared_bytes_;
  check(max_dynamic_shared_bytes >= 0 && max_dynamic_shared_bytes <= most, "kernel ", name,
        ": max_dynamic_shared_bytes is ", max_dynamic_shared_bytes, ", must be from 0 to ", most,
        " on ", device.name, ": choose smaller tiles");
  allow(FunctionAttribute::kMaxDynamicSharedSizeBytes, max_dynamic_shared_bytes);
  is_hopper_or_later_ = device.compute_capability >= kHopper;
  if (is_hopper_or_later_) allow(FunctionAttribute::kNonPortableClusterSizeAllowed, 1);
  if (!driver.cuFuncGetParamInfo) return;
  for (size_t offset = 0, bytes = 0;;) {
    const Result result =
        driver.cuFuncGetParamInfo(function_, parameter_bytes_.size(), &offset, &bytes);
    if (result == kInvalidValue) break;  // past the last parameter
    driver.check(result, "cuFuncGetParamInfo", " of ", name);
    parameter_bytes_.push_back(bytes);
  }
}

void Kernel::check_shape(const LaunchShape& shape) const {
  check_dim(name_, "grid", shape.grid, kMaxGrid);
  check_dim(name_, "block", shape.block, kMaxBlock);
  check(volume(shape.block) <= max_threads_per_block_, "kernel ", name_, ": a block of ",
        volume(shape.block), " threads, at most ", max_threads_per_block_,
        " have registers enough");
  check(shape.shared_bytes <= static_cast<uint32_t>(max_dynamic_shared_bytes_), "kernel ", name_,
        ": shared_bytes is ", shape.shared_bytes, ", at most ", max_dynamic_shared_bytes_,
        " as the kernel was made");
  const Dim3& cluster = shape.cluster;
  check_dim(name_, "cluster", cluster, shape.grid);
  const int64_t most = is_hopper_or_later_ ? kMaxClusterBlocks : 1;
  check(volume(cluster) <= most, "kernel ", name_, ": a cluster of ", volume(cluster),
        " blocks, at most ", most, " on this device");
  if (shape.grid.x % cluster.x || shape.grid.y % cluster.y || shape.grid.z % cluster.z) [[unlikely]]
    fail(ErrorCode::kInvalidArgument, "kernel ", name_, ": grid is ", text(shape.grid),
         ", must be whole clusters of ", text(cluster));
}

void Kernel::check_launch(const LaunchShape& shape, std::span<const size_t> argument_bytes) const {
  check_shape(shape);
  if (!driver_->cuFuncGetParamInfo) return;
  check(argument_bytes.size() == parameter_bytes_.size(), "kernel ", name_, ": ",
        argument_bytes.size(), " arguments, it takes ", parameter_bytes_.size());
  for (size_t i = 0; i < argument_bytes.size(); i++)
    check(argument_bytes[i] == parameter_bytes_[i], "kernel ", name_, ": argument ", i, " has ",
          argument_bytes[i], " bytes, the parameter ", parameter_bytes_[i]);
}

void Kernel::launch_with(const LaunchShape& shape, Stream stream, const void* const* arguments,
                         std::span<const size_t> argument_bytes) const {
  check_launch(shape, argument_bytes);
  LaunchAttribute attributes[2] = {};
  uint32_t num_attributes = 0;
  if (volume(shape.cluster) > 1) {
    LaunchAttribute& attribute = attributes[num_attributes++];
    attribute.id = LaunchAttributeId::kClusterDimension;
    attribute.value.cluster = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
  }
  if (shape.overlaps_previous && is_hopper_or_later_) {
    LaunchAttribute& attribute = attributes[num_attributes++];
    attribute.id = LaunchAttributeId::kProgrammaticStreamSerialization;
    attribute.value.programmatic_stream_serialization_allowed = 1;
  }
  const LaunchConfig config = {shape.grid.x,  shape.grid.y,  shape.grid.z,       shape.block.x,
                               shape.block.y, shape.block.z, shape.shared_bytes, stream.handle,
                               attributes,    num_attributes};
  // The driver only reads them.
  driver_->check(
      driver_->cuLaunchKernelEx(&config, function_, const_cast<void**>(arguments), nullptr),
      "cuLaunchKernelEx", " of ", name_);
}

}  // namespace rapt::cuda
