#include "launch/stream.hpp"

#include <bit>
#include <thread>

#include "unit/launch/fake_driver.hpp"

namespace rapt::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StreamTest : public FakeDriverTest {
 protected:
  static Stream of(fake::Stream& stream) { return {reinterpret_cast<StreamHandle>(&stream)}; }
  static Event of(fake::Event& event) { return {reinterpret_cast<EventHandle>(&event)}; }

  const Context context_{Device(driver_, 0)};
  const CurrentContext current_{context_};
};

TEST_F(StreamTest, a_capture_is_seen_with_its_id) {
  fake::Stream stream{context_.handle(), CaptureStatus::kActive, 41};
  EXPECT_TRUE(capture_of(driver_, of(stream)).active());
  EXPECT_EQ(capture_of(driver_, of(stream)).id, 41u);
  stream.capture = CaptureStatus::kInvalidated;
  EXPECT_FALSE(capture_of(driver_, of(stream)).active());
  EXPECT_EQ(capture_of(driver_, of(stream)).status, CaptureStatus::kInvalidated);
  EXPECT_EQ(capture_of(driver_, of(stream)).id, 0u);
  EXPECT_EQ(capture_of(driver_, {}).status, CaptureStatus::kNone);
  EXPECT_THAT(error_when_fails("cuStreamGetCaptureInfo_v2", [&] { capture_of(driver_, {}); }),
              HasSubstr("cuStreamGetCaptureInfo_v2: "));
}

TEST_F(StreamTest, a_threads_own_stream_is_told_from_another_threads) {
  fake::Stream one, other;
  EXPECT_EQ(identity_of(of(one)), identity_of(of(one)));
  EXPECT_NE(identity_of(of(one)), identity_of(of(other)));
  EXPECT_NE(identity_of(of(one)), identity_of({}));
  const Stream own{std::bit_cast<StreamHandle>(uintptr_t{2})};  // CU_STREAM_PER_THREAD
  EXPECT_EQ(identity_of(own), identity_of(own));
  EXPECT_NE(identity_of(own), identity_of({}));
  uintptr_t here = 0, there = 0, default_there = 1;
  here = identity_of(own);
  std::thread([&] { there = identity_of(own), default_there = identity_of({}); }).join();
  EXPECT_NE(there, here);
  EXPECT_EQ(default_there, identity_of({}));
}

TEST_F(StreamTest, one_of_another_context_is_refused) {
  fake::Stream mine{primary_context_(0)}, other{primary_context_(1)};
  EXPECT_NO_THROW(check_stream(context_, of(mine)));
  EXPECT_NO_THROW(check_stream(context_, {}));
  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument, [&] { check_stream(context_, of(other)); }),
      HasSubstr("is of another context than device 0's primary one: make the stream on that"));
  EXPECT_THAT(error_when_fails("cuStreamGetCtx", [&] { check_stream(context_, of(mine)); }),
              HasSubstr("cuStreamGetCtx: "));
}

TEST_F(StreamTest, waits_and_records_are_one_call_each) {
  fake::Stream stream{context_.handle()};
  fake::Event event;
  calls();
  record(driver_, of(event), of(stream));
  wait(driver_, of(stream), of(event));
  synchronize(driver_, of(stream));
  EXPECT_THAT(calls(), ElementsAre("cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize"));
  EXPECT_THAT(error_when_fails("cuEventRecord", [&] { record(driver_, of(event), {}); }),
              HasSubstr("cuEventRecord: "));
  EXPECT_THAT(error_when_fails("cuStreamWaitEvent", [&] { wait(driver_, {}, of(event)); }),
              HasSubstr("cuStreamWaitEvent: "));
  EXPECT_THAT(error_when_fails("cuStreamSynchronize", [&] { synchronize(driver_, {}); }),
              HasSubstr("cuStreamSynchronize: "));
}

TEST_F(StreamTest, an_event_has_happened_or_not_or_reports_what_failed) {
  fake::Event event{kNotReady};
  EXPECT_FALSE(happened(driver_, of(event)));
  event.state = kSuccess;
  EXPECT_TRUE(happened(driver_, of(event)));
  event.state = 700;  // an illegal address, in work before it
  EXPECT_EQ(error_of(ErrorCode::kDevice, [&] { happened(driver_, of(event)); }),
            "cuEventQuery: CUDA_ERROR_FAKE (700), told to fail");
}

TEST_F(StreamTest, an_owned_event_is_ended_and_its_context_is_made_current) {
  ContextHandle popped = nullptr;
  driver_.check(driver_.cuCtxPopCurrent_v2(&popped), "cuCtxPopCurrent_v2");
  {
    const OwnedEvent event(context_);
    EXPECT_EQ(control_->events.size(), 1u);
  }
  EXPECT_TRUE(control_->events.empty());
  EXPECT_THAT(error_when_fails("cuEventCreate", [&] { OwnedEvent event(context_); }),
              HasSubstr("cuEventCreate: "));
  driver_.check(driver_.cuCtxPushCurrent_v2(popped), "cuCtxPushCurrent_v2");
}

}  // namespace
}  // namespace rapt::cuda
