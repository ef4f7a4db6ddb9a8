#include "rapt/device_buffer.hpp"

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "api/context_impl.hpp"
#include "core/check.hpp"

namespace rapt {
namespace {

constexpr std::align_val_t kAlignment{256};  // as the CUDA driver's

void* allocate(const Gpu* gpu, size_t bytes) {
  if (gpu) return gpu->allocate(bytes);
  // operator new rounds up to the alignment, and no further than this without a wrap.
  void* data = bytes <= PTRDIFF_MAX ? ::operator new(bytes, kAlignment, std::nothrow) : nullptr;
  if (!data)
    fail(ErrorCode::kOutOfMemory, "no memory for a device buffer of ", bytes, " bytes on the host");
  return data;
}

}  // namespace

DeviceBuffer::DeviceBuffer(Context& context, size_t bytes)
    : context_(&context),
      bytes_(bytes),
      device_(context.tensor_device()),
      host_accessible_(!context.impl().gpu || context.impl().gpu->host_accessible()) {
  if (bytes) data_ = allocate(context.impl().gpu.get(), bytes);
}

DeviceBuffer::~DeviceBuffer() {
  if (!data_) return;
  if (const Gpu* gpu = context_->impl().gpu.get())
    gpu->release(data_);
  else
    ::operator delete(data_, kAlignment);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept {
  *this = std::move(other);
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(host_accessible_, other.host_accessible_);
  return *this;
}

void DeviceBuffer::check_range(size_t bytes, size_t offset) const {
  check(offset <= bytes_ && bytes <= bytes_ - offset, "a copy of ", bytes, " bytes at offset ",
        offset, ": the device buffer has ", bytes_);
}

void DeviceBuffer::copy_from_host(const void* from, size_t bytes, size_t offset, void* stream) {
  check_range(bytes, offset);
  if (!bytes) return;
  auto* to = static_cast<std::byte*>(data_) + offset;
  if (const Gpu* gpu = context_->impl().gpu.get())
    gpu->copy_to_device(to, from, bytes, stream);
  else
    std::memcpy(to, from, bytes);
}

void DeviceBuffer::copy_to_host(void* to, size_t bytes, size_t offset, void* stream) const {
  check_range(bytes, offset);
  if (!bytes) return;
  const auto* from = static_cast<const std::byte*>(data_) + offset;
  if (const Gpu* gpu = context_->impl().gpu.get())
    gpu->copy_to_host(to, from, bytes, stream);
  else
    std::memcpy(to, from, bytes);
}

}  // namespace rapt
