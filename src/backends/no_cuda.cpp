// What stands in for the GPU half in a build without it.
#include "backends/backend.hpp"
#include "core/check.hpp"

namespace rapt {

std::unique_ptr<Gpu> open_gpu(const GpuOptions& options) {
  fail(ErrorCode::kUnsupported, "device is \"", options.device,
       "\": this build of Rapt has no GPU half (RAPT_CUDA=OFF), only the device cpu");
}

std::vector<DeviceInfo> list_cuda_devices() {
  fail(ErrorCode::kUnsupported, "this build of Rapt has no GPU half (RAPT_CUDA=OFF)");
}

std::vector<DeviceInfo> list_emulated_devices() {
  return list_cuda_devices();
}

std::unique_ptr<AttentionBackend> make_flash_attention_backend(const AttentionSpec&, Gpu&) {
  fail(ErrorCode::kInternal, "flash_attention was selected in a build without it");
}

}  // namespace rapt
