#include "jit/loaded_kernels.hpp"

#include <utility>

#include "core/check.hpp"

namespace rapt::jit {

const cuda::Kernel& LoadedKernels::get(const KernelKey& key, const KernelSource& source,
                                       int32_t max_dynamic_shared_bytes) {
  const DeviceInfo& device = context_.device().info();
  check(key.architecture().runs_on(device.compute_capability), "kernel ", key.text(),
        " does not run on ", device.name, ", whose compute capability is ",
        device.compute_capability, ": ask for its architecture");
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = loaded_.find(key.text()); known != loaded_.end())
      return known->second->kernel;
  }
  // Without the lock: others load other kernels meanwhile.
  const std::shared_ptr<const CompiledKernel> compiled = store_.get(key, source);
  auto loaded =
      std::make_unique<Loaded>(context_, *compiled, source.function, max_dynamic_shared_bytes);
  const std::lock_guard lock(mutex_);
  // Where another thread was first, its kernel stays.
  return loaded_.emplace(key.text(), std::move(loaded)).first->second->kernel;
}

}  // namespace rapt::jit
