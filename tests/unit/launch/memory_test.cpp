#include "launch/memory.hpp"

#include <numeric>

#include "unit/launch/fake_driver.hpp"

namespace rapt::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class MemoryTest : public FakeDriverTest {
 protected:
  const Context context_{Device(driver_, 0)};
};

TEST_F(MemoryTest, buffers_are_freed_once_wherever_they_have_moved) {
  {
    DeviceBuffer first(context_, 1000), second(context_, 24), none(context_, 0);
    EXPECT_EQ(none.address(), 0u);
    EXPECT_EQ(control_->device_memory.size(), 2u);
    EXPECT_EQ(control_->device_memory.at(first.address()), 1000u);
    const DevicePointer address = first.address();
    DeviceBuffer moved(std::move(first));
    EXPECT_EQ(moved.address(), address);
    EXPECT_EQ(moved.bytes(), 1000u);
    second = std::move(moved);
    EXPECT_EQ(second.address(), address);
    HostBuffer host(context_, 100), other;
    other = std::move(host);
    EXPECT_EQ(control_->host_memory.at(other.data()), 100u);
  }
  EXPECT_THAT(control_->device_memory, IsEmpty());
  EXPECT_THAT(control_->host_memory, IsEmpty());
}

TEST_F(MemoryTest, a_full_device_is_out_of_memory_with_the_bytes_asked_for) {
  EXPECT_EQ(error_when_fails(
                "cuMemAlloc_v2", [&] { DeviceBuffer(context_, 4096); }, kOutOfMemory),
            "cuMemAlloc_v2 of 4096 bytes on device 0: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory");
  EXPECT_THAT(error_when_fails(
                  "cuMemHostAlloc", [&] { HostBuffer(context_, 77); }, kOutOfMemory),
              HasSubstr("cuMemHostAlloc of 77 bytes"));
  EXPECT_THAT(control_->device_memory, IsEmpty());
  EXPECT_NO_THROW(DeviceBuffer(context_, 4096));
}

TEST_F(MemoryTest, copies_move_exactly_their_bytes) {
  const CurrentContext current(context_);
  const DeviceBuffer from(context_, 64), to(context_, 64);
  std::vector<uint8_t> bytes(64), back(64, 0xEE);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  copy_to_device(driver_, from.address(), bytes.data(), 64, {});
  fill(driver_, to.address(), 0x5C, 64, {});
  copy_on_device(driver_, to.address() + 8, from.address() + 16, 32, {});
  copy_to_host(driver_, back.data(), to.address(), 48, {});
  for (size_t i = 0; i < 64; i++)
    EXPECT_EQ(back[i], i >= 48 ? 0xEE : i < 8 || i >= 40 ? 0x5C : bytes[i + 8]) << i;
}

TEST_F(MemoryTest, copies_of_nothing_call_nothing) {
  calls();
  copy_to_device(driver_, 0, nullptr, 0, {});
  copy_to_host(driver_, nullptr, 0, 0, {});
  copy_on_device(driver_, 0, 0, 0, {});
  fill(driver_, 0, 1, 0, {});
  EXPECT_THAT(calls(), IsEmpty());
}

TEST_F(MemoryTest, a_copy_that_fails_names_call_and_bytes) {
  const CurrentContext current(context_);
  const DeviceBuffer buffer(context_, 8);
  uint64_t value = 7;
  const DevicePointer address = buffer.address();
  EXPECT_THAT(
      error_of(ErrorCode::kDevice, [&] { copy_to_device(driver_, address, &value, 9, {}); }),
      HasSubstr("cuMemcpyHtoDAsync_v2 of 9 bytes: CUDA_ERROR_FAKE (1)"));
  EXPECT_THAT(error_of(ErrorCode::kDevice, [&] { copy_to_host(driver_, &value, address, 9, {}); }),
              HasSubstr("cuMemcpyDtoHAsync_v2 of 9 bytes"));
  EXPECT_THAT(error_of(ErrorCode::kDevice, [&] { copy_on_device(driver_, address, 0, 8, {}); }),
              HasSubstr("cuMemcpyDtoDAsync_v2 of 8 bytes"));
  EXPECT_THAT(error_of(ErrorCode::kDevice, [&] { fill(driver_, address, 1, 9, {}); }),
              HasSubstr("cuMemsetD8Async of 9 bytes"));
  EXPECT_EQ(value, 7u);
}

}  // namespace
}  // namespace rapt::cuda
