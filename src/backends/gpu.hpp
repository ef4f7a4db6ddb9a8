// A GPU that a context has opened, as the layers above launch/ and jit/ see it. A build without
// them (RAPT_CUDA=OFF) has this interface too, and no object of it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/attention.hpp"

namespace rapt {

class AttentionBackend;

class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual Device tensor_device() const = 0;
  virtual bool host_accessible() const = 0;  // its memory, as it is

  virtual void* allocate(size_t bytes) const = 0;
  virtual void release(void* data) const noexcept = 0;
  // Both wait until the copy is done.
  virtual void copy_to_device(void* to, const void* from, size_t bytes, void* stream) const = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes, void* stream) const = 0;
  virtual void synchronize(void* stream) const = 0;

  // `args` is valid and on this GPU. Throws before anything is written.
  virtual void merge(const MergeArgs& args) = 0;
};

struct GpuOptions {
  std::string device;  // as in ContextOptions, not "cpu"
  std::vector<std::string> packs;
  std::optional<std::string> cache_folder;
  std::function<void(LogLevel, std::string_view)> log;  // as there
  bool check_device_indices = false;
};

// Throws as Context's constructor does.
std::unique_ptr<Gpu> open_gpu(const GpuOptions& options);

// As cuda_devices() and emulated_devices() of rapt/context.hpp.
std::vector<DeviceInfo> list_cuda_devices();
std::vector<DeviceInfo> list_emulated_devices();

// `spec` is one that selection accepts for this GPU, which must outlive the backend.
std::unique_ptr<AttentionBackend> make_flash_attention_backend(const AttentionSpec& spec, Gpu& gpu);

}  // namespace rapt
