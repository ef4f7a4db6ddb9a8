// What the tests of the emulator's driver share: a device, and kernels compiled for it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "jit/loaded_kernels.hpp"
#include "launch/emulated.hpp"
#include "launch/memory.hpp"
#include "unit/jit/scratch.hpp"

namespace rapt::cuda {

using jit::error_of;

// A variable of the environment, as it was again afterwards.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* old = std::getenv(name);
    if (old) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { old_.empty() ? unsetenv(name_) : setenv(name_, old_.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string old_;
};

class EmulatedDevice : public testing::Test {
 protected:
  explicit EmulatedDevice(int32_t compute_capability = 80)
      : context_(Device(emulated_driver(), emulated_ordinal(compute_capability))) {}

  const Driver& driver() const { return context_.driver(); }

  static jit::StoreOptions store_options(const std::filesystem::path& cache) {
    jit::StoreOptions options;
    options.cache_folder = cache;
    options.make_compiler = [] {
      return std::make_unique<jit::Nvrtc>(std::vector<std::string>{emulator_library()});
    };
    return options;
  }
  // Of a kernel whose text stands alone.
  static jit::KernelSource source_of(const std::string& function, const std::string& entry) {
    return {"copy/tile.cuh", function, entry, {}};
  }
  jit::KernelKey key_of(const std::string& kernel) const {
    return {kernel, {context_.device().info().compute_capability, 0}};
  }

  // Compiles and loads.
  const Kernel& load(const jit::KernelSource& source, int32_t max_dynamic_shared_bytes = 0) {
    return kernels_.get(key_of(source.function), source, max_dynamic_shared_bytes);
  }

  template <typename T>
  DeviceBuffer on_device(const std::vector<T>& values) const {
    DeviceBuffer buffer(context_, values.size() * sizeof(T));
    copy_to_device(driver(), buffer.address(), values.data(), buffer.bytes(), {});
    return buffer;
  }
  template <typename T>
  std::vector<T> on_host(const DeviceBuffer& buffer) const {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    copy_to_host(driver(), values.data(), buffer.address(), buffer.bytes(), {});
    return values;
  }

  Context context_;
  CurrentContext current_{context_};
  jit::ScratchFolder scratch_;
  jit::KernelStore store_{store_options(scratch_ / "cache")};
  jit::LoadedKernels kernels_{context_, store_};
};

}  // namespace rapt::cuda
