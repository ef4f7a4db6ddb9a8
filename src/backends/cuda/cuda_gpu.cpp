#include "backends/cuda/cuda_gpu.hpp"

#include <bit>
#include <utility>

#include "core/check.hpp"
#include "launch/memory.hpp"

namespace rapt {

CudaGpu::CudaGpu(const cuda::Device& device, jit::StoreOptions store_options,
                 const Options& options)
    : context_(device),
      store_(std::move(store_options)),
      kernels_(context_, store_),
      options_(options) {}

Device CudaGpu::tensor_device() const {
  return {DeviceKind::kCuda, context_.device().ordinal()};
}

void* CudaGpu::allocate(size_t bytes) const {
  const cuda::CurrentContext current(context_);
  cuda::DevicePointer address = 0;
  driver().check(driver().cuMemAlloc_v2(&address, bytes), "cuMemAlloc_v2", " of ", bytes,
                 " bytes on ", info().name);
  return std::bit_cast<void*>(address);
}

void CudaGpu::release(void* data) const noexcept {
  try {
    const cuda::CurrentContext current(context_);
    driver().cuMemFree_v2(address_of(data));
  } catch (const Error&) {  // the driver is gone, and the memory with it
  }
}

void CudaGpu::copy_to_device(void* to, const void* from, size_t bytes, void* stream) const {
  const cuda::CurrentContext current(context_);
  cuda::check_stream(context_, stream_of(stream));
  cuda::copy_to_device(driver(), address_of(to), from, bytes, stream_of(stream));
  cuda::synchronize(driver(), stream_of(stream));
}

void CudaGpu::copy_to_host(void* to, const void* from, size_t bytes, void* stream) const {
  const cuda::CurrentContext current(context_);
  cuda::check_stream(context_, stream_of(stream));
  cuda::copy_to_host(driver(), to, address_of(from), bytes, stream_of(stream));
  cuda::synchronize(driver(), stream_of(stream));
}

void CudaGpu::synchronize(void* stream) const {
  const cuda::CurrentContext current(context_);
  cuda::check_stream(context_, stream_of(stream));
  cuda::synchronize(driver(), stream_of(stream));
}

}  // namespace rapt
