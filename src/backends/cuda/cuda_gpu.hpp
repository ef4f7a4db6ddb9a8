// A GPU through the CUDA driver, or what passes for one: its context, and the kernels in it.
#pragma once

#include "backends/cuda/kernel_text.hpp"
#include "backends/gpu.hpp"

namespace rapt {

class CudaGpu final : public Gpu {
 public:
  // host_accessible: device addresses are the host's too.
  CudaGpu(const cuda::Device& device, jit::StoreOptions store_options, bool host_accessible);

  const DeviceInfo& info() const override { return context_.device().info(); }
  Device tensor_device() const override;
  bool host_accessible() const override { return host_accessible_; }

  void* allocate(size_t bytes) const override;
  void release(void* data) const noexcept override;
  void copy_to_device(void* to, const void* from, size_t bytes, void* stream) const override;
  void copy_to_host(void* to, const void* from, size_t bytes, void* stream) const override;
  void synchronize(void* stream) const override;
  void merge(const MergeArgs& args) override;

  const cuda::Context& context() const { return context_; }
  const cuda::Driver& driver() const { return context_.driver(); }
  jit::LoadedKernels& kernels() { return kernels_; }
  jit::Architecture architecture() const { return architecture_for(info().compute_capability); }

 private:
  cuda::Context context_;
  jit::KernelStore store_;
  jit::LoadedKernels kernels_;
  bool host_accessible_;
  LazyKernel merge_kernels_[3][3];  // from and to float32, float16, bfloat16
};

// The kernel of merge(); each dtype is float32, float16 or bfloat16.
KernelText merge_states_text(DType from, DType to, jit::Architecture architecture);

// The stream of RunArgs and its kin.
inline cuda::Stream stream_of(void* stream) {
  return {static_cast<cuda::StreamHandle>(stream)};
}
inline cuda::DevicePointer address_of(const void* data) {
  return reinterpret_cast<cuda::DevicePointer>(data);
}

}  // namespace rapt
