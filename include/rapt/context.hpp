// What Rapt owns while it works: threads, callbacks, and nothing global.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/device.hpp"
#include "rapt/export.hpp"

namespace rapt {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// Runs task(i) once for every i in [0, num_tasks), on any threads, and returns when all are done.
// Tasks never throw, never block on each other, and may run in any order, also one after the other
// on the calling thread.
using ParallelFor =
    std::function<void(int32_t num_tasks, const std::function<void(int32_t)>& task)>;

struct ContextOptions {
  // Where attention runs: "cpu"; "cuda" or "cuda:1", a GPU by its number, the first by default; or
  // "emulated-sm80": the kernels for GPUs of that compute capability, run on the CPU, slowly, for
  // tests and for machines without one.
  std::string device = "cpu";
  int32_t num_threads =
      0;  // CPU threads including the caller's; 0 = the cores this process may use
  ParallelFor parallel_for{};  // the caller's own pool; empty = Rapt's (a bounded spin, then sleep)
  std::optional<CpuIsa> isa{};  // a lower level than the processor has; unset = host_cpu().isa
  std::function<void(LogLevel, std::string_view)>
      log{};  // what was chosen and why (kInfo), what is right but slow (kWarning), in lines of
              // which the last is not ended; empty = silent

  // GPUs: files of compiled kernels, asked in this order; then those that the environment variable
  // RAPT_PACK names, separated by ':'; then rapt/core.rpk beside the library, if there is one. What
  // none of them has is compiled at its first use.
  std::vector<std::string> packs{};
  // GPUs: the folder that keeps what was compiled. Unset = RAPT_CACHE_DIR, else
  // XDG_CACHE_HOME/rapt, else HOME/.cache/rapt; empty = nothing is kept.
  std::optional<std::string> cache_folder{};
  // GPUs, for debugging: what lies in device memory and sends kernels to pages is looked at before
  // they follow it. Each run checks the page ids of a table there, as far as the lengths reach,
  // each write_kv the slots and rope's positions, and throws Error(kInvalidArgument) that names the
  // first one outside the pool, the cache or cos_sin, before anything is written. Both then wait
  // for their stream and allocate, and throw Error(kUnsupported) where it is being captured. Also
  // switched on by the environment variable RAPT_CHECK_DEVICE_INDICES=1. What lies on the host is
  // always checked.
  bool check_device_indices = false;
};

// Shared by any number of Attention objects, which it must outlive; safe to use from several
// threads, which then take turns on its pool.
class RAPT_API Context {
 public:
  // Throws Error(kInvalidArgument) for an option out of its bounds or a device that is not there,
  // Error(kMissingLibrary) that names the library where there is no driver, Error(kDevice) for what
  // the driver refuses, Error(kIo) for a pack that cannot be read.
  explicit Context(ContextOptions options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int32_t num_threads() const;
  // The device plans are made for: host_cpu() with this context's ISA and thread count, or the GPU
  // as its driver describes it.
  const DeviceInfo& device() const;
  // Where tensors of this context's runs are: what TensorView::device says.
  Device tensor_device() const;
  // Waits for all work of the CUDA stream; null is the default stream. Nothing to do on the CPU.
  void synchronize(void* stream = nullptr) const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// The GPUs of this machine: the one at i is what ContextOptions::device calls "cuda:i". Throws
// Error(kMissingLibrary) that names the library where there is no driver, Error(kDevice) where it
// finds none, Error(kUnsupported) in a build without GPUs (RAPT_CUDA=OFF).
RAPT_API std::vector<DeviceInfo> cuda_devices();
// The emulated ones: that of compute capability NN is "emulated-smNN" there. Throws
// Error(kMissingLibrary) where the emulator is not beside Rapt, Error(kUnsupported) as above.
RAPT_API std::vector<DeviceInfo> emulated_devices();

}  // namespace rapt
