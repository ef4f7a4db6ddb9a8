// A GPU through the CUDA driver, or what passes for one: its context, and the kernels in it.
#pragma once

#include "backends/cuda/kernel_text.hpp"
#include "backends/gpu.hpp"
#include "kernels/abi/check_indices.hpp"

namespace rapt {

class CudaGpu final : public Gpu {
 public:
  struct Options {
    bool host_accessible = false;  // device addresses are the host's too
    bool checks_indices = false;   // as ContextOptions::check_device_indices
  };
  CudaGpu(const cuda::Device& device, jit::StoreOptions store_options, const Options& options);

  const DeviceInfo& info() const override { return context_.device().info(); }
  Device tensor_device() const override;
  bool host_accessible() const override { return options_.host_accessible; }

  void* allocate(size_t bytes) const override;
  void release(void* data) const noexcept override;
  void copy_to_device(void* to, const void* from, size_t bytes, void* stream) const override;
  void copy_to_host(void* to, const void* from, size_t bytes, void* stream) const override;
  void synchronize(void* stream) const override;
  void merge(const MergeArgs& args) override;

  // Whether backends call the next four before their kernels follow page ids and slots that lie in
  // device memory.
  bool checks_indices() const { return options_.checks_indices; }
  // Throws Error(kUnsupported) where work of the stream becomes part of a graph: a check waits.
  void refuse_capture(cuda::Stream stream) const;
  // Wait for the stream. `found` is theirs to fill. Throw Error(kInvalidArgument) that names the
  // first index outside its bounds.
  void check_page_ids(const device::CheckPageIdsParams& params, cuda::Stream stream);
  void check_slots(const device::CheckSlotsParams& params, cuda::Stream stream);
  void check_positions(const device::CheckPositionsParams& params, cuda::Stream stream);

  const cuda::Context& context() const { return context_; }
  const cuda::Driver& driver() const { return context_.driver(); }
  jit::LoadedKernels& kernels() { return kernels_; }
  jit::Architecture architecture() const { return architecture_for(info().compute_capability); }

 private:
  cuda::Context context_;
  jit::KernelStore store_;
  jit::LoadedKernels kernels_;
  Options options_;
  LazyKernel merge_kernels_[3][3];  // from and to float32, float16, bfloat16
  LazyKernel check_page_ids_, check_slots_, check_positions_;
};

// The kernel of merge(); each dtype is float32, float16 or bfloat16.
KernelText merge_states_text(DType from, DType to, jit::Architecture architecture);
// The kernels of the checks, which packs do not have.
KernelText check_page_ids_text(jit::Architecture architecture);
KernelText check_slots_text(jit::Architecture architecture);
KernelText check_positions_text(jit::Architecture architecture);

// The stream of RunArgs and its kin.
inline cuda::Stream stream_of(void* stream) {
  return {static_cast<cuda::StreamHandle>(stream)};
}
inline cuda::DevicePointer address_of(const void* data) {
  return reinterpret_cast<cuda::DevicePointer>(data);
}

}  // namespace rapt
