// From a device's name to the driver, the device and the compiler that stand behind it: the one
// place that knows of emulated devices.
#include <dlfcn.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "backends/cuda/cuda_gpu.hpp"
#include "core/check.hpp"
#include "launch/emulated.hpp"

namespace rapt {
namespace {

constexpr std::string_view kCuda = "cuda", kEmulated = "emulated-sm";

// The number that ends the name.
std::optional<int32_t> number_of(std::string_view digits) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return {};
  return number;
}

// rapt/core.rpk beside the library, or the program, that this code is in.
std::filesystem::path pack_beside_library() {
  Dl_info info = {};
  static const char here = 0;
  std::error_code ignored;
  if (!dladdr(&here, &info) || !info.dli_fname) return {};
  return std::filesystem::canonical(info.dli_fname, ignored).parent_path() / "rapt" / "core.rpk";
}

// That a kernel is compiled is news; the first time it is a warning, since a pack would spare all
// of it.
std::function<void(const std::string&)> build_logger(
    const std::function<void(LogLevel, std::string_view)>& log) {
  if (!log) return {};
  return [log, warned = std::make_shared<std::atomic_flag>()](const std::string& key) {
    if (!warned->test_and_set())
      log(LogLevel::kWarning, "compiling kernels that no pack and no cache has, seconds for each");
    log(LogLevel::kInfo, concat("compiling kernel ", key));
  };
}

jit::StoreOptions store_options_of(const GpuOptions& options) {
  jit::StoreOptions store;
  store.packs.assign(options.packs.begin(), options.packs.end());
  if (const char* named = std::getenv("RAPT_PACK"))
    for (std::string_view rest = named; !rest.empty();) {
      const std::string_view pack = rest.substr(0, rest.find(':'));
      if (!pack.empty()) store.packs.emplace_back(pack);
      rest.remove_prefix(std::min(rest.size(), pack.size() + 1));
    }
  std::error_code ignored;
  if (const auto pack = pack_beside_library(); std::filesystem::exists(pack, ignored))
    store.packs.push_back(pack);
  if (options.cache_folder) store.cache_folder = *options.cache_folder;
  store.on_build = build_logger(options.log);
  return store;
}

bool checks_indices(const GpuOptions& options) {
  const char* asked = std::getenv("RAPT_CHECK_DEVICE_INDICES");
  return options.check_device_indices || (asked && *asked && std::string_view(asked) != "0");
}

std::vector<DeviceInfo> list_devices(const cuda::Driver& driver) {
  const int32_t count = cuda::device_count(driver);
  std::vector<DeviceInfo> devices;
  devices.reserve(static_cast<size_t>(count));
  for (int32_t ordinal = 0; ordinal < count; ordinal++)
    devices.push_back(cuda::Device(driver, ordinal).info());
  return devices;
}

}  // namespace

std::vector<DeviceInfo> list_cuda_devices() {
  return list_devices(cuda::driver());
}

std::vector<DeviceInfo> list_emulated_devices() {
  return list_devices(cuda::emulated_driver());
}

std::unique_ptr<Gpu> open_gpu(const GpuOptions& options) {
  const std::string_view name = options.device;
  if (name.starts_with(kEmulated)) {
    if (const auto compute_capability = number_of(name.substr(kEmulated.size()))) {
      const cuda::Device device(cuda::emulated_driver(),
                                cuda::emulated_ordinal(*compute_capability));
      jit::StoreOptions store = store_options_of(options);
      store.packs.clear();  // of code for real GPUs
      store.make_compiler = [] {
        return std::make_unique<jit::Nvrtc>(std::vector{cuda::emulator_library()});
      };
      return std::make_unique<CudaGpu>(
          device, std::move(store),
          CudaGpu::Options{.host_accessible = true, .checks_indices = checks_indices(options)});
    }
  } else if (name.starts_with(kCuda)) {
    std::optional<int32_t> ordinal = 0;
    if (name != kCuda)
      ordinal = name[kCuda.size()] == ':' ? number_of(name.substr(kCuda.size() + 1)) : std::nullopt;
    if (ordinal) {
      jit::StoreOptions store = store_options_of(options);
      if (cuda::is_emulated(cuda::driver())) store.packs.clear();
      return std::make_unique<CudaGpu>(cuda::Device(cuda::driver(), *ordinal), std::move(store),
                                       CudaGpu::Options{.checks_indices = checks_indices(options)});
    }
  }
  fail(ErrorCode::kInvalidArgument, "device is \"", name,
       "\": must be cpu, cuda, cuda:N for the GPU with that number, or emulated-smNN for the "
       "emulated one of that compute capability");
}

}  // namespace rapt
