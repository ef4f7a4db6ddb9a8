#include "rapt/context.hpp"

#include <string>

#include "api/context_impl.hpp"
#include "core/check.hpp"

namespace rapt {
namespace {

constexpr const char* kCpu = "cpu";

}  // namespace

Context::Context(ContextOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->num_threads = resolve_num_threads(options.num_threads);
  const bool on_cpu = options.device == kCpu;
  check(on_cpu || !options.isa, "isa is given, but device is \"", options.device,
        "\": only the device cpu has one");
  impl_->device = host_cpu();
  if (options.isa) {
    check(*options.isa <= impl_->device.isa, "isa is ", to_string(*options.isa),
          ": this processor has ", to_string(impl_->device.isa));
    impl_->device.isa = *options.isa;
  }
  impl_->device.num_cores = impl_->num_threads;
  if (options.parallel_for) {
    impl_->parallel_for = options.parallel_for;
  } else {
    impl_->pool.emplace(impl_->num_threads);
    impl_->parallel_for = [pool = &*impl_->pool](int32_t num_tasks,
                                                 const std::function<void(int32_t)>& task) {
      pool->run(num_tasks, task);
    };
  }
  if (!on_cpu) {
    impl_->gpu = open_gpu({options.device, options.packs, options.cache_folder, options.log,
                           options.check_device_indices});
    impl_->device = impl_->gpu->info();
  }
  impl_->options = std::move(options);
}

Context::~Context() = default;

int32_t Context::num_threads() const {
  return impl_->num_threads;
}
const DeviceInfo& Context::device() const {
  return impl_->device;
}
Device Context::tensor_device() const {
  return impl_->gpu ? impl_->gpu->tensor_device() : Device{};
}
void Context::synchronize(void* stream) const {
  if (impl_->gpu) impl_->gpu->synchronize(stream);
}

std::vector<DeviceInfo> cuda_devices() {
  return list_cuda_devices();
}
std::vector<DeviceInfo> emulated_devices() {
  return list_emulated_devices();
}

}  // namespace rapt
