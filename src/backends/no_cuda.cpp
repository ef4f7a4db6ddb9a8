// What stands in for the GPU half in a build without it.
#include "backends/backend.hpp"
#include "core/check.hpp"
#include "rapt/pack.hpp"

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

std::vector<PackedKernel> build_pack(const std::string& path, const PackOptions&) {
  fail(ErrorCode::kUnsupported, "pack ", path,
       ": this build of Rapt has no GPU half (RAPT_CUDA=OFF), which makes and reads packs");
}

std::vector<PackedKernel> list_pack(const std::string& path) {
  return build_pack(path, {});
}

std::unique_ptr<AttentionBackend> make_flash_attention_backend(const AttentionSpec&, Gpu&) {
  fail(ErrorCode::kInternal, "flash_attention was selected in a build without it");
}

}  // namespace rapt
