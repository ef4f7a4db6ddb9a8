#include "launch/memory.hpp"

#include <utility>

namespace rapt::cuda {

DeviceBuffer::DeviceBuffer(const Context& context, size_t bytes)
    : context_(&context), bytes_(bytes) {
  if (!bytes) return;
  const CurrentContext current(context);
  const Driver& driver = context.driver();
  driver.check(driver.cuMemAlloc_v2(&address_, bytes), "cuMemAlloc_v2", " of ", bytes,
               " bytes on device ", context.device().ordinal());
}

DeviceBuffer::~DeviceBuffer() {
  if (!address_) return;
  try {
    const CurrentContext current(*context_);
    context_->driver().cuMemFree_v2(address_);
  } catch (const Error&) {  // the driver is gone, and the memory with it
  }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept {
  *this = std::move(other);
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

HostBuffer::HostBuffer(const Context& context, size_t bytes) : context_(&context), bytes_(bytes) {
  if (!bytes) return;
  const CurrentContext current(context);
  const Driver& driver = context.driver();
  driver.check(driver.cuMemHostAlloc(&data_, bytes, 0), "cuMemHostAlloc", " of ", bytes, " bytes");
}

HostBuffer::~HostBuffer() {
  if (!data_) return;
  try {
    const CurrentContext current(*context_);
    context_->driver().cuMemFreeHost(data_);
  } catch (const Error&) {  // the driver is gone, and the memory with it
  }
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept {
  *this = std::move(other);
}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void copy_to_device(const Driver& driver, DevicePointer to, const void* from, size_t bytes,
                    Stream stream) {
  if (bytes)
    driver.check(driver.cuMemcpyHtoDAsync_v2(to, from, bytes, stream.handle),
                 "cuMemcpyHtoDAsync_v2", " of ", bytes, " bytes");
}

void copy_to_host(const Driver& driver, void* to, DevicePointer from, size_t bytes, Stream stream) {
  if (bytes)
    driver.check(driver.cuMemcpyDtoHAsync_v2(to, from, bytes, stream.handle),
                 "cuMemcpyDtoHAsync_v2", " of ", bytes, " bytes");
}

void copy_on_device(const Driver& driver, DevicePointer to, DevicePointer from, size_t bytes,
                    Stream stream) {
  if (bytes)
    driver.check(driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream.handle),
                 "cuMemcpyDtoDAsync_v2", " of ", bytes, " bytes");
}

void fill(const Driver& driver, DevicePointer to, uint8_t value, size_t bytes, Stream stream) {
  if (bytes)
    driver.check(driver.cuMemsetD8Async(to, value, bytes, stream.handle), "cuMemsetD8Async", " of ",
                 bytes, " bytes");
}

}  // namespace rapt::cuda
