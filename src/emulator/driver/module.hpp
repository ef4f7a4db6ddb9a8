// Modules and the kernels in them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emulator/driver/context.hpp"
#include "emulator/driver/graph.hpp"
#include "emulator/driver/image.hpp"

namespace rapt::cuda {

struct FunctionObject {
  const ModuleObject* module;
  std::string name;
  emulator::Entry entry;
  std::vector<size_t> offsets;  // of its parameters, which lie in one block
  size_t parameter_bytes;       // of the block
  int32_t max_dynamic_shared_bytes;
};

struct ModuleObject {
  ModuleObject(ContextObject& of, const void* bytes)
      : context(&of), image(bytes, of.info().compute_capability) {}

  ContextObject* context;
  emulator::Image image;
  std::map<std::string, std::unique_ptr<FunctionObject>> functions;
};

}  // namespace rapt::cuda

namespace rapt::emulator {

// A launch, to be done now or later; its parameters are copied. Fails where it can be seen to.
Work work_of(const cuda::LaunchConfig& config, cuda::FunctionHandle function, void** parameters);

}  // namespace rapt::emulator
