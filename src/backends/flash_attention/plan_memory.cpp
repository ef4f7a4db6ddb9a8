#include "backends/flash_attention/plan_memory.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"

namespace rapt::flash_attention {

void PlanMemory::reset(size_t bytes) {
  uploaded_on_ = kNowhere;
  used_ = 0;
  if (bytes <= host_.bytes()) return;
  // Half as much again, so that growing batches seldom allocate.
  const size_t room = bytes + bytes / 2;
  cuda::HostBuffer host(context_, room);
  device_ = cuda::DeviceBuffer(context_, room);
  host_ = std::move(host);
}

size_t PlanMemory::take(size_t bytes) {
  const size_t offset = used_;
  used_ += room_for(bytes);
  if (used_ > host_.bytes())
    fail(ErrorCode::kInternal, "a plan stages ", used_, " bytes in room for ", host_.bytes());
  return offset;
}

size_t PlanMemory::add_bytes(const void* data, size_t bytes) {
  const size_t offset = take(bytes);
  if (bytes) std::memcpy(staged(offset), data, bytes);
  return offset;
}

void PlanMemory::upload(cuda::Stream stream) const {
  if (used_ == 0 || uploaded_on_.load(std::memory_order_acquire) == identity_of(stream)) return;
  const cuda::Driver& driver = context_.driver();
  // A captured copy is the graph's: it has not happened here, and happens at each of its launches.
  const bool captured = cuda::capture_of(driver, stream).active();
  cuda::copy_to_device(driver, device_.address(), host_.data(), used_, stream);
  if (!captured) uploaded_on_.store(identity_of(stream), std::memory_order_release);
}

}  // namespace rapt::flash_attention
