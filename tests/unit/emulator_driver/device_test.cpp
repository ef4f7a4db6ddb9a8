// The emulated devices and their memory, through src/launch.
#include <cmath>

#include "rapt/device.hpp"
#include "unit/emulator_driver/emulated.hpp"

namespace rapt::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

TEST(EmulatedDevices, there_is_one_of_every_capability_with_the_tables_numbers) {
  const std::vector<int32_t> capabilities = {75, 80, 86, 89, 90, 100, 103, 120, 121};
  ASSERT_EQ(device_count(emulated_driver()), std::ssize(capabilities));
  for (int32_t ordinal = 0; ordinal < std::ssize(capabilities); ordinal++) {
    const DeviceInfo info = Device(emulated_driver(), ordinal).info();
    const std::string number = std::to_string(capabilities[static_cast<size_t>(ordinal)]);
    const DeviceInfo table = device_info("sm" + number);
    EXPECT_EQ(info.name, "emulated sm_" + number);
    EXPECT_EQ(info.compute_capability, table.compute_capability);
    EXPECT_EQ(info.shared_memory_bytes_per_block, table.shared_memory_bytes_per_block);
    EXPECT_EQ(info.memory_bandwidth, table.memory_bandwidth);
    EXPECT_EQ(info.num_sms, 4);
    EXPECT_EQ(info.memory_bytes, int64_t{4} << 30);
    EXPECT_EQ(emulated_ordinal(table.compute_capability), ordinal);
  }
}

TEST(EmulatedDevices, others_are_refused) {
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [] { Device(emulated_driver(), 9); }),
              HasSubstr("this machine has 9"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [] { Device(emulated_driver(), -1); }),
              HasSubstr("device -1"));
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [] { emulated_ordinal(87); }),
              HasSubstr("87, there are 75, 80, 86, 89, 90, 100, 103, 120, 121"));
  DeviceHandle handle = 0;
  EXPECT_THAT(error_of(ErrorCode::kDevice,
                       [&] {
                         emulated_driver().check(emulated_driver().cuDeviceGet(&handle, 9),
                                                 "cuDeviceGet");
                       }),
              AllOf(HasSubstr("CUDA_ERROR_INVALID_DEVICE (101)"), HasSubstr("emulated device 9")));
}

class EmulatedMemory : public EmulatedDevice {};

TEST_F(EmulatedMemory, begins_as_nan_and_at_addresses_that_the_host_may_use) {
  const DeviceBuffer buffer(context_, 999 * sizeof(float));
  EXPECT_EQ(buffer.address() % 256, 0U);
  for (const float value : on_host<float>(buffer)) EXPECT_TRUE(std::isnan(value));
  reinterpret_cast<float*>(buffer.address())[998] = 5;
  EXPECT_EQ(on_host<float>(buffer).back(), 5);
}

TEST_F(EmulatedMemory, is_copied_and_filled) {
  const DeviceBuffer a = on_device(std::vector<int>{1, 2, 3, 4}), b(context_, 16);
  copy_on_device(driver(), b.address() + 4, a.address(), 12, {});
  fill(driver(), b.address(), 0x11, 4, {});
  EXPECT_THAT(on_host<int>(b), testing::ElementsAre(0x11111111, 1, 2, 3));
}

TEST_F(EmulatedMemory, copies_past_an_end_are_refused) {
  DeviceBuffer a(context_, 100);
  const DeviceBuffer b(context_, 50);
  char host[101] = {};
  const auto expect_refused = [&](const auto& copy, const char* what) {
    EXPECT_THAT(error_of(ErrorCode::kDevice, copy),
                AllOf(HasSubstr("CUDA_ERROR_INVALID_VALUE"), HasSubstr(what)));
  };
  expect_refused([&] { copy_to_device(driver(), a.address(), host, 101, {}); },
                 "101 bytes at byte 0 of allocation 0 (100 bytes)");
  expect_refused([&] { copy_to_host(driver(), host, a.address() + 60, 41, {}); },
                 "41 bytes at byte 60 of allocation 0");
  expect_refused([&] { copy_on_device(driver(), b.address(), a.address(), 51, {}); },
                 "51 bytes at byte 0 of allocation 1");
  expect_refused([&] { fill(driver(), a.address() + 101, 0, 1, {}); }, "not inside an allocation");
  // A pointer of the other side.
  expect_refused(
      [&] { copy_to_device(driver(), reinterpret_cast<DevicePointer>(host), host, 1, {}); },
      "not inside an allocation of emulated sm_80");
  expect_refused(
      [&] { copy_to_device(driver(), b.address(), reinterpret_cast<void*>(a.address()), 1, {}); },
      "byte 0 of allocation 0 (100 bytes) is no host memory");
  const DevicePointer gone = a.address();
  a = DeviceBuffer();
  expect_refused([&] { copy_to_host(driver(), host, gone, 1, {}); }, "not inside an allocation");
  EXPECT_THAT(host, Each(0));
}

TEST_F(EmulatedMemory, ends_at_the_devices) {
  const int64_t most = context_.device().info().memory_bytes;
  const std::string text = error_of(ErrorCode::kOutOfMemory,
                                    [&] { DeviceBuffer(context_, static_cast<size_t>(most) + 1); });
  EXPECT_THAT(text, AllOf(HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"), HasSubstr("emulated sm_80")));
  const DeviceBuffer some(context_, 1 << 20);
  EXPECT_THAT(
      error_of(ErrorCode::kOutOfMemory, [&] { DeviceBuffer(context_, static_cast<size_t>(most)); }),
      HasSubstr("1048576 of the 4294967296 bytes"));
}

TEST_F(EmulatedMemory, is_freed_once_and_by_its_beginning) {
  DevicePointer pointer = 0;
  driver().check(driver().cuMemAlloc_v2(&pointer, 64), "cuMemAlloc_v2");
  EXPECT_EQ(driver().cuMemFree_v2(pointer + 16), kInvalidValue);
  EXPECT_EQ(driver().cuMemFree_v2(pointer), kSuccess);
  EXPECT_EQ(driver().cuMemFree_v2(pointer), kInvalidValue);
  EXPECT_EQ(driver().cuMemFree_v2(0), kSuccess);
  EXPECT_EQ(driver().cuMemAlloc_v2(&pointer, 0), kInvalidValue);
}

TEST_F(EmulatedMemory, of_another_device_is_another) {
  const Context hopper(Device(emulated_driver(), emulated_ordinal(90)));
  const DeviceBuffer theirs(hopper, 4);
  int value = 0;
  EXPECT_THAT(error_of(ErrorCode::kDevice,
                       [&] { copy_to_host(driver(), &value, theirs.address(), 4, {}); }),
              HasSubstr("not inside an allocation of emulated sm_80"));
  const CurrentContext current(hopper);
  copy_to_host(driver(), &value, theirs.address(), 4, {});
  EXPECT_EQ(value, -1);
}

TEST_F(EmulatedMemory, page_locked_is_the_hosts) {
  const HostBuffer staging(context_, 12);
  static_cast<int*>(staging.data())[2] = 7;
  const DeviceBuffer device(context_, 12);
  copy_to_device(driver(), device.address(), staging.data(), 12, {});
  EXPECT_EQ(on_host<int>(device)[2], 7);
  int local = 0;
  EXPECT_EQ(driver().cuMemFreeHost(&local), kInvalidValue);
}

TEST_F(EmulatedMemory, needs_a_context) {
  ContextHandle popped = nullptr;
  driver().check(driver().cuCtxPopCurrent_v2(&popped), "cuCtxPopCurrent_v2");
  DevicePointer pointer = 0;
  constexpr Result kInvalidContext = 201;
  EXPECT_EQ(driver().cuMemAlloc_v2(&pointer, 64), kInvalidContext);
  driver().check(driver().cuCtxPushCurrent_v2(popped), "cuCtxPushCurrent_v2");
  EXPECT_EQ(driver().cuMemAlloc_v2(&pointer, 64), kSuccess);
}

class EmulatedStream : public EmulatedDevice {};

TEST_F(EmulatedStream, there_is_the_default_one_alone) {
  EXPECT_NO_THROW(check_stream(context_, {}));
  EXPECT_NO_THROW(synchronize(driver(), {}));
  EXPECT_FALSE(capture_of(driver(), {}).active());
  int thing = 0;
  const Stream other{reinterpret_cast<StreamHandle>(&thing)};
  const auto expect_refused = [](const auto& act, const char* what) {
    EXPECT_THAT(error_of(ErrorCode::kDevice, act),
                AllOf(HasSubstr("CUDA_ERROR_INVALID_HANDLE (400)"), HasSubstr(what)));
  };
  expect_refused([&] { check_stream(context_, other); }, "the default stream only");
  expect_refused([&] { synchronize(driver(), other); }, "the default stream only");
  expect_refused([&] { capture_of(driver(), other); }, "the default stream only");
  expect_refused([&] { fill(driver(), 0, 0, 1, other); }, "the default stream only");
}

TEST_F(EmulatedStream, events_have_happened) {
  Event gone;
  {
    const OwnedEvent event(context_);
    gone = event;
    EXPECT_TRUE(happened(driver(), event));
    record(driver(), event, {});
    wait(driver(), {}, event);
    EXPECT_TRUE(happened(driver(), event));
  }
  EXPECT_THAT(error_of(ErrorCode::kDevice, [&] { happened(driver(), gone); }),
              AllOf(HasSubstr("CUDA_ERROR_INVALID_HANDLE (400)"), HasSubstr("no such event")));
}

}  // namespace
}  // namespace rapt::cuda
