#include "launch/stream.hpp"

#include <bit>

namespace rapt::cuda {

OwnedEvent::OwnedEvent(const Context& context) : context_(context) {
  const CurrentContext current(context);
  context.driver().check(context.driver().cuEventCreate(&event_.handle, kEventDisableTiming),
                         "cuEventCreate");
}

OwnedEvent::~OwnedEvent() {
  try {
    const CurrentContext current(context_);
    context_.driver().cuEventDestroy_v2(event_.handle);
  } catch (const Error&) {  // the driver is gone, and the event with it
  }
}

Capture capture_of(const Driver& driver, Stream stream) {
  Capture capture;
  driver.check(driver.cuStreamGetCaptureInfo_v2(stream.handle, &capture.status, &capture.id,
                                                nullptr, nullptr, nullptr),
               "cuStreamGetCaptureInfo_v2");
  if (!capture.active()) capture.id = 0;  // whatever the driver left there
  return capture;
}

void check_stream(const Context& context, Stream stream) {
  if (!stream.handle) return;
  ContextHandle owner = nullptr;
  context.driver().check(context.driver().cuStreamGetCtx(stream.handle, &owner), "cuStreamGetCtx");
  check(owner == context.handle(), "stream ", static_cast<void*>(stream.handle),
        " is of another context than device ", context.device().ordinal(),
        "'s primary one: make the stream on that device");
}

uintptr_t identity_of(Stream stream) {
  constexpr uintptr_t kPerThread = 2;  // CU_STREAM_PER_THREAD
  static thread_local const char of_thread = 0;
  const auto handle = std::bit_cast<uintptr_t>(stream.handle);
  return handle == kPerThread ? std::bit_cast<uintptr_t>(&of_thread) : handle;
}

void synchronize(const Driver& driver, Stream stream) {
  driver.check(driver.cuStreamSynchronize(stream.handle), "cuStreamSynchronize");
}

void wait(const Driver& driver, Stream stream, Event event) {
  driver.check(driver.cuStreamWaitEvent(stream.handle, event.handle, 0), "cuStreamWaitEvent");
}

void record(const Driver& driver, Event event, Stream stream) {
  driver.check(driver.cuEventRecord(event.handle, stream.handle), "cuEventRecord");
}

bool happened(const Driver& driver, Event event) {
  const Result result = driver.cuEventQuery(event.handle);
  if (result == kNotReady) return false;
  driver.check(result, "cuEventQuery");
  return true;
}

}  // namespace rapt::cuda
