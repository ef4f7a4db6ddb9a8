#include "launch/device.hpp"

#include "unit/launch/fake_driver.hpp"

namespace rapt::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DeviceTest : public FakeDriverTest {};

TEST_F(DeviceTest, properties_are_the_drivers) {
  ASSERT_EQ(device_count(driver_), 2);
  const DeviceInfo h200 = Device(driver_, 0).info();
  EXPECT_EQ(h200.name, "NVIDIA H200");
  EXPECT_EQ(h200.kind, DeviceKind::kCuda);
  EXPECT_EQ(h200.compute_capability, 90);
  EXPECT_EQ(h200.num_sms, 132);
  EXPECT_EQ(h200.shared_memory_bytes_per_block, 232448);
  EXPECT_EQ(h200.memory_bytes, 150109880320);
  // As published: 4.8 TB/s, of the card's rounded clock; 2.04 TB/s.
  EXPECT_NEAR(h200.memory_bandwidth, 4.8e12, 0.03 * 4.8e12);
  EXPECT_NEAR(Device(driver_, 1).info().memory_bandwidth, 2.039e12, 0.001e12);
  EXPECT_EQ(Device(driver_, 1).info().compute_capability, 80);
}

TEST_F(DeviceTest, ordinals_past_the_last_are_refused) {
  for (int32_t ordinal : {-1, 2})
    EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { Device(driver_, ordinal); }),
              concat("CUDA device ", ordinal, ": this machine has 2, numbered from 0"));
}

TEST_F(DeviceTest, every_failing_question_names_its_call) {
  for (const char* call : {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
                           "cuDeviceGetAttribute", "cuDeviceTotalMem_v2"})
    EXPECT_THAT(error_when_fails(call, [&] { Device(driver_, 1); }), HasSubstr(call));
  const Device device(driver_, 1);
  EXPECT_EQ(error_when_fails("cuDevicePrimaryCtxRetain", [&] { Context{device}; }),
            "cuDevicePrimaryCtxRetain of device 1: CUDA_ERROR_FAKE (719), told to fail");
  EXPECT_THAT(control_->retained, ElementsAre(0, 0));
}

TEST_F(DeviceTest, a_context_is_the_primary_one_and_released_once) {
  {
    const Context context(Device(driver_, 1));
    EXPECT_EQ(context.handle(), primary_context_(1));
    EXPECT_THAT(control_->retained, ElementsAre(0, 1));
    const Context again(context.device());
    EXPECT_THAT(control_->retained, ElementsAre(0, 2));
  }
  EXPECT_THAT(control_->retained, ElementsAre(0, 0));
}

TEST_F(DeviceTest, the_current_context_is_put_back_as_it_was) {
  const Context first(Device(driver_, 0)), second(Device(driver_, 1));
  const auto current = [&] {
    ContextHandle handle = nullptr;
    driver_.check(driver_.cuCtxGetCurrent(&handle), "cuCtxGetCurrent");
    return handle;
  };
  EXPECT_EQ(current(), nullptr);
  {
    const CurrentContext outer(first);
    EXPECT_EQ(current(), first.handle());
    {
      const CurrentContext inner(second);
      EXPECT_EQ(current(), second.handle());
    }
    EXPECT_EQ(current(), first.handle());
    calls();
    { const CurrentContext same(first); }
    EXPECT_THAT(calls(), ElementsAre("cuCtxGetCurrent"));
  }
  EXPECT_EQ(current(), nullptr);
  for (const char* call : {"cuCtxGetCurrent", "cuCtxPushCurrent_v2"})
    EXPECT_THAT(error_when_fails(call, [&] { CurrentContext{first}; }), HasSubstr(call));
  EXPECT_EQ(current(), nullptr);
}

}  // namespace
}  // namespace rapt::cuda
