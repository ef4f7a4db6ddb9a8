// A GPU for the engine's own kernels: the emulator in place of NVIDIA's driver and compiler, and a
// stand-in for cuBLASLt.
#pragma once

#include <cstdlib>
#include <vector>

#include "llm/cuda/driver.hpp"
#include "rapt/rapt.hpp"

namespace llm::test {

constexpr const char* kEmulatedGpu = "cuda:1";  // of compute capability 8.0
constexpr int32_t kOrdinal = 1, kComputeCapability = 80;

// Must come before the process's first context: Rapt loads the driver once.
inline void use_emulated_gpu() {
  setenv("RAPT_LIBCUDA", EMULATOR, 1);
  setenv("RAPT_NVRTC", EMULATOR, 1);
  setenv("RAPT_CUBLASLT", FAKE_LIBCUBLAS_LT, 1);
  setenv("RAPT_CACHE_DIR", KERNEL_CACHE, 1);
}

template <typename T>
rapt::DeviceBuffer to_device(rapt::Context& context, const std::vector<T>& values) {
  rapt::DeviceBuffer buffer(context, values.size() * sizeof(T));
  buffer.copy_from_host(values.data(), buffer.bytes());
  return buffer;
}

template <typename T>
std::vector<T> to_host(const rapt::DeviceBuffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  buffer.copy_to_host(values.data(), buffer.bytes());
  return values;
}

}  // namespace llm::test
