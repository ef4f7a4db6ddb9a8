// Streams and events, and the questions a run asks of them.
#pragma once

#include "launch/device.hpp"

namespace rapt::cuda {

// Borrowed of the caller: copying or destroying these does nothing to the driver's objects.
struct Stream {
  StreamHandle handle = nullptr;  // null: the legacy default stream
};
struct Event {
  EventHandle handle = nullptr;
};

// One of Rapt's own, that tells no time. It has happened until it is first recorded.
class OwnedEvent {
 public:
  explicit OwnedEvent(const Context& context);
  ~OwnedEvent();
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;

  operator Event() const { return event_; }

 private:
  const Context& context_;
  Event event_;
};

struct Capture {
  CaptureStatus status = CaptureStatus::kNone;
  uint64_t id = 0;  // of the capture, unique in the process; 0 while none is active

  bool active() const { return status == CaptureStatus::kActive; }
};

// Whether work put on the stream now becomes part of a graph. Needs a current context.
Capture capture_of(const Driver& driver, Stream stream);

// Throws Error(kInvalidArgument) unless the stream belongs to the context, which must be current:
// the default stream does, as it is every context's.
void check_stream(const Context& context, Stream stream);

// What tells a stream from others that are alive: its handle, but of CU_STREAM_PER_THREAD, which is
// another stream in each thread, something of the thread. Never all ones.
uintptr_t identity_of(Stream stream);

// Waits on the host until all work of the stream is done.
void synchronize(const Driver& driver, Stream stream);
// Work put on the stream from now on waits for the event's last record.
void wait(const Driver& driver, Stream stream, Event event);
// The event happens when the work put on the stream so far is done.
void record(const Driver& driver, Event event, Stream stream);
// Whether it has. Throws what failed in that work, if something did.
bool happened(const Driver& driver, Event event);

}  // namespace rapt::cuda
