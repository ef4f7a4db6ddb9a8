#include "emulator/driver/stream.hpp"

#include <mutex>
#include <set>

#include "emulator/driver/context.hpp"
#include "emulator/driver/graph.hpp"

namespace rapt::emulator {

using cuda::ContextHandle;
using cuda::EventHandle;
using cuda::StreamHandle;

void require_stream(StreamHandle stream) {
  require(reinterpret_cast<uintptr_t>(stream) <= kPerThreadStream, kInvalidHandle,
          "an emulated device has the default stream only");
}

namespace {

// Those that there are. Work is done at once, so that each has happened.
struct Events {
  std::mutex mutex;
  std::set<EventHandle> handles;
  uintptr_t last = 0;
};
Events& events() {
  static auto& all = *new Events;
  return all;
}

void require_event(EventHandle event) {
  const std::lock_guard lock(events().mutex);
  require(events().handles.contains(event), kInvalidHandle, "there is no such event");
}

// In a graph they would order its branches.
void require_uncaptured(StreamHandle stream) {
  require_stream(stream);
  require(!is_captured(stream), kNotSupported, "events on a captured stream");
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
Result cuStreamWaitEvent(StreamHandle stream, EventHandle event, uint32_t) {
  return answered([&] {
    require_uncaptured(stream);
    require_event(event);
  });
}
Result cuEventCreate(EventHandle* event, uint32_t) {
  return answered([&] {
    current_context();
    const std::lock_guard lock(events().mutex);
    *event = reinterpret_cast<EventHandle>(++events().last);
    events().handles.insert(*event);
  });
}
Result cuEventDestroy_v2(EventHandle event) {
  return answered([&] {
    require_event(event);
    const std::lock_guard lock(events().mutex);
    events().handles.erase(event);
  });
}
Result cuEventRecord(EventHandle event, StreamHandle stream) {
  return answered([&] {
    require_uncaptured(stream);
    require_event(event);
  });
}
Result cuEventQuery(EventHandle event) {
  return answered([&] { require_event(event); });
}
}
#pragma GCC visibility pop

}  // namespace rapt::emulator
