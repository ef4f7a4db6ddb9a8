// The kernels of one context, ready to launch.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "jit/kernel_store.hpp"
#include "launch/kernel.hpp"

namespace rapt::jit {

// Context and store must outlive it.
class LoadedKernels {
 public:
  LoadedKernels(const cuda::Context& context, KernelStore& store)
      : context_(context), store_(store) {}

  // The kernel of that key, compiled and loaded at its first use; later calls give the same object,
  // which lives as long as this. Any number of threads at once. A plan asks, a run does not: this
  // formats and may allocate. max_dynamic_shared_bytes goes with the key. Throws
  // Error(kInvalidArgument) for code that does not run on the context's device, and what store and
  // driver throw.
  const cuda::Kernel& get(const KernelKey& key, const KernelSource& source,
                          int32_t max_dynamic_shared_bytes);

 private:
  struct Loaded {
    Loaded(const cuda::Context& context, const CompiledKernel& compiled,
           const std::string& function, int32_t max_dynamic_shared_bytes)
        : module(context, compiled.image.data(), compiled.image.size()),
          kernel(module, function, max_dynamic_shared_bytes) {}

    cuda::Module module;
    cuda::Kernel kernel;
  };

  const cuda::Context& context_;
  KernelStore& store_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Loaded>> loaded_;  // by the key's text
};

}  // namespace rapt::jit
