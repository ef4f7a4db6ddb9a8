#include "emulator/driver/stream.hpp"

#include "emulator/driver/context.hpp"

namespace rapt::emulator {

using cuda::CaptureStatus;
using cuda::ContextHandle;
using cuda::EventHandle;
using cuda::StreamHandle;

void require_stream(StreamHandle stream) {
  constexpr uintptr_t kPerThread = 2;
  require(reinterpret_cast<uintptr_t>(stream) <= kPerThread, kInvalidHandle,
          "an emulated device has the default stream only");
}

namespace {

[[noreturn]] void refuse_event() {
  throw Refusal{kInvalidHandle, "an emulated device has no events: all work is done at once"};
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result cuStreamGetCtx(StreamHandle stream, ContextHandle* context) {
  return answered([&] {
    require_stream(stream);
    *context = &current_context();
  });
}
Result cuStreamSynchronize(StreamHandle stream) {
  return answered([&] {
    require_stream(stream);
    current_context();
  });
}
Result cuStreamWaitEvent(StreamHandle stream, EventHandle, uint32_t) {
  return answered([&] {
    require_stream(stream);
    refuse_event();
  });
}
// Nothing can be captured: launches would have to be kept.
Result cuStreamGetCaptureInfo_v2(StreamHandle stream, CaptureStatus* status, uint64_t* id, void**,
                                 const void**, size_t*) {
  return answered([&] {
    require_stream(stream);
    *status = CaptureStatus::kNone;
    if (id) *id = 0;
  });
}
Result cuEventRecord(EventHandle, StreamHandle) {
  return answered([] { refuse_event(); });
}
Result cuEventQuery(EventHandle) {
  return answered([] { refuse_event(); });
}
}
#pragma GCC visibility pop

}  // namespace rapt::emulator
