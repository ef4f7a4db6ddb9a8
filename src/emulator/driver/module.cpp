#include "emulator/driver/module.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "emulator/driver/graph.hpp"
#include "emulator/driver/stream.hpp"
#include "emulator/fiber.hpp"

namespace rapt::emulator {

using cuda::FunctionAttribute;
using cuda::FunctionHandle;
using cuda::FunctionObject;
using cuda::LaunchConfig;
using cuda::ModuleHandle;
using cuda::ModuleObject;

namespace {

constexpr int32_t kMaxThreads = 1024;
// What a launch may ask for where nobody allowed more ("CUDA C++ Programming Guide", "Shared
// Memory").
constexpr int32_t kDefaultDynamicSharedBytes = 48 << 10;
// The least that every tensor map needs.
constexpr std::align_val_t kParameterAlignment{64};

struct Environment {
  uint64_t seed = 0;
  bool check_order = true;
};

const Environment& environment() {
  static const Environment read = [] {
    Environment found;
    if (const char* seed = std::getenv("RAPT_EMULATOR_SEED"))
      found.seed = std::strtoull(seed, nullptr, 10);
    if (const char* check = std::getenv("RAPT_EMULATOR_CHECK"))
      found.check_order = std::string_view(check) != "0";
    return found;
  }();
  return read;
}

std::unique_ptr<FunctionObject> make_function(const ModuleObject& module, const std::string& name,
                                              const Entry& entry) {
  auto made = std::make_unique<FunctionObject>(
      FunctionObject{&module, name, entry, {}, 0, kDefaultDynamicSharedBytes});
  for (uint32_t i = 0; i < entry.num_parameters; i++) {
    const auto [bytes, alignment] = entry.parameters[i];
    const size_t offset = (made->parameter_bytes + alignment - 1) / alignment * alignment;
    made->offsets.push_back(offset);
    made->parameter_bytes = offset + bytes;
  }
  return made;
}

// A copy of a launch's parameters, and where they are.
class Parameters {
 public:
  Parameters(const FunctionObject& function, void** from)
      : pointers_(function.offsets.size()),
        bytes_(function.parameter_bytes),
        block_(static_cast<char*>(operator new(bytes_ + 1, kParameterAlignment))) {
    for (size_t i = 0; i < pointers_.size(); i++) {
      char* const to = block_ + function.offsets[i];
      std::memcpy(to, from[i], function.entry.parameters[i].bytes);
      pointers_[i] = to;
    }
  }
  ~Parameters() { operator delete(block_, kParameterAlignment); }
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  const void* const* pointers() const { return pointers_.data(); }
  // Both are read by the entry.
  std::span<const char> block() const { return {block_, bytes_}; }
  std::span<const char> pointer_bytes() const {
    return {reinterpret_cast<const char*>(pointers_.data()), pointers_.size() * sizeof(void*)};
  }

 private:
  std::vector<const void*> pointers_;
  size_t bytes_;
  char* block_;
};

void require_launchable(const FunctionObject& function, const LaunchConfig& config) {
  require_stream(config.stream);
  require(config.block_y == 1 && config.block_z == 1, kNotSupported, "blocks are one-dimensional");
  require(config.block_x >= 1 && config.block_x <= kMaxThreads, cuda::kInvalidValue, "a block of ",
          config.block_x, " threads, must be 1 to ", kMaxThreads);
  require(config.grid_x && config.grid_y && config.grid_z, cuda::kInvalidValue,
          "a grid of no blocks");
  require(config.shared_bytes <= static_cast<uint32_t>(function.max_dynamic_shared_bytes),
          cuda::kInvalidValue, config.shared_bytes, " bytes of shared memory, allowed are ",
          function.max_dynamic_shared_bytes);
  for (uint32_t i = 0; i < config.num_attributes; i++) {
    const cuda::LaunchAttribute& attribute = config.attributes[i];
    switch (attribute.id) {
      case cuda::LaunchAttributeId::kClusterDimension: {
        const auto& cluster = attribute.value.cluster;
        require(cluster.x == 1 && cluster.y == 1 && cluster.z == 1, kNotSupported,
                "clusters of blocks");
        break;
      }
      // It allows an overlap and asks for none.
      case cuda::LaunchAttributeId::kProgrammaticStreamSerialization:
        break;
      default:
        require(false, kNotSupported, "launch attribute ", static_cast<int32_t>(attribute.id));
    }
  }
}

void run(const FunctionObject& function, const LaunchConfig& config, const Parameters& parameters) {
  ContextObject& context = *function.module->context;
  const std::lock_guard lock(context.mutex);
  // Faults are the process's, so are their handlers.
  static std::mutex one_at_a_time;
  const std::lock_guard alone(one_at_a_time);
  // Never destroyed: programs may launch until their very end.
  static auto& stacks = *new StackPool;
  const Image& image = function.module->image;
  std::vector<std::span<const char>> readable = image.segments();
  readable.push_back(parameters.block());
  readable.push_back(parameters.pointer_bytes());
  launch(context.memory,
         {{config.grid_x, config.grid_y, config.grid_z}, config.block_x, config.shared_bytes},
         {.seed = environment().seed,
          .resident_blocks = static_cast<uint32_t>(context.info().num_sms),
          .check_order = environment().check_order,
          .stacks = &stacks,
          .compute_capability = image.architecture(),
          .readable = std::move(readable)},
         [&] { function.entry.call(parameters.pointers()); });
}

}  // namespace

Work work_of(const LaunchConfig& config, FunctionHandle function, void** parameters) {
  require_launchable(*function, config);
  require(&current_context() == function->module->context, kInvalidHandle, function->name,
          " is of another context than the current one");
  return [function, shape = config, copied = std::make_shared<Parameters>(*function, parameters)] {
    run(*function, shape, *copied);
  };
}

#pragma GCC visibility push(default)
extern "C" {

Result cuModuleLoadData(ModuleHandle* module, const void* image) {
  return answered([&] {
    ContextObject& context = current_context();
    auto made = std::make_unique<ModuleObject>(context, image);
    const std::lock_guard lock(context.mutex);
    *module = made.get();
    context.modules[made.get()] = std::move(made);
  });
}
Result cuModuleUnload(ModuleHandle module) {
  return answered([&] {
    ContextObject& context = current_context();
    const std::lock_guard lock(context.mutex);
    require(context.modules.erase(module) == 1, kInvalidHandle, "no module of the current context");
  });
}
Result cuModuleGetFunction(FunctionHandle* function, ModuleHandle module, const char* name) {
  return answered([&] {
    const std::lock_guard lock(module->context->mutex);
    std::unique_ptr<FunctionObject>& known = module->functions[name];
    if (!known) {
      const Entry* entry = module->image.find(name);
      require(entry, kNotFound, "the module has no kernel ", name);
      known = make_function(*module, name, *entry);
    }
    *function = known.get();
  });
}

Result cuFuncLoad(FunctionHandle) {
  return cuda::kSuccess;  // with its module
}
Result cuFuncGetAttribute(int32_t* value, FunctionAttribute attribute, FunctionHandle function) {
  return answered([&] {
    switch (attribute) {
      case FunctionAttribute::kMaxThreadsPerBlock:
        *value = kMaxThreads;
        return;
      // The host's compiler has no counterpart to these, and device text declares no variables in
      // shared memory.
      case FunctionAttribute::kSharedSizeBytes:
      case FunctionAttribute::kLocalSizeBytes:
      case FunctionAttribute::kNumRegisters:
        *value = 0;
        return;
      case FunctionAttribute::kMaxDynamicSharedSizeBytes:
        *value = function->max_dynamic_shared_bytes;
        return;
      case FunctionAttribute::kNonPortableClusterSizeAllowed:
        break;
    }
    require(false, kNotSupported, "function attribute ", static_cast<int32_t>(attribute));
  });
}
Result cuFuncSetAttribute(FunctionHandle function, FunctionAttribute attribute, int32_t value) {
  return answered([&] {
    switch (attribute) {
      case FunctionAttribute::kMaxDynamicSharedSizeBytes:
        require(
            value >= 0 && value <= function->module->context->info().shared_memory_bytes_per_block,
            cuda::kInvalidValue, value, " bytes of shared memory, ",
            function->module->context->info().name, " has ",
            function->module->context->info().shared_memory_bytes_per_block);
        function->max_dynamic_shared_bytes = value;
        return;
      // It allows clusters, and launches with one are refused.
      case FunctionAttribute::kNonPortableClusterSizeAllowed:
        return;
      default:
        require(false, kNotSupported, "function attribute ", static_cast<int32_t>(attribute));
    }
  });
}
Result cuFuncGetParamInfo(FunctionHandle function, size_t index, size_t* offset, size_t* bytes) {
  return answered([&] {
    require(index < function->offsets.size(), cuda::kInvalidValue, function->name, " takes ",
            function->offsets.size(), " parameters");
    *offset = function->offsets[index];
    if (bytes) *bytes = function->entry.parameters[index].bytes;
  });
}

Result cuLaunchKernelEx(const LaunchConfig* config, FunctionHandle function, void** parameters,
                        void** extra) {
  return answered([&] {
    require(!extra, kNotSupported, "parameters in one block");
    do_or_keep(config->stream, work_of(*config, function, parameters));
  });
}
}
#pragma GCC visibility pop

}  // namespace rapt::emulator
