#include "emulator/driver/graph.hpp"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/driver/context.hpp"
#include "emulator/driver/stream.hpp"

namespace rapt::cuda {

struct GraphObject {
  std::vector<emulator::Work> works;
};
struct GraphExecObject {
  std::vector<emulator::Work> works;
};

}  // namespace rapt::cuda

namespace rapt::emulator {

using cuda::CaptureStatus;
using cuda::GraphExecObject;
using cuda::GraphObject;
using cuda::StreamHandle;

namespace {

// Of the thread's own default stream, which is another for each thread.
struct Capture {
  std::unique_ptr<GraphObject> graph;
  uint64_t id = 0;
};
thread_local Capture capture;

uint64_t new_id() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

}  // namespace

bool is_captured(StreamHandle stream) {
  return capture.graph && reinterpret_cast<uintptr_t>(stream) == kPerThreadStream;
}

void do_or_keep(StreamHandle stream, Work work) {
  if (is_captured(stream))
    capture.graph->works.push_back(std::move(work));
  else
    work();
}

#pragma GCC visibility push(default)
extern "C" {

Result cuStreamBeginCapture_v2(StreamHandle stream, int32_t) {
  return answered([&] {
    require_stream(stream);
    current_context();
    require(reinterpret_cast<uintptr_t>(stream) == kPerThreadStream, kNotSupported,
            "a capture of another stream than the thread's own");
    require(!capture.graph, cuda::kInvalidValue, "the stream is being captured");
    capture = {std::make_unique<GraphObject>(), new_id()};
  });
}
Result cuStreamEndCapture(StreamHandle stream, GraphObject** graph) {
  return answered([&] {
    require(is_captured(stream), cuda::kInvalidValue, "the stream is not being captured");
    *graph = capture.graph.release();
  });
}
Result cuStreamGetCaptureInfo_v2(StreamHandle stream, CaptureStatus* status, uint64_t* id, void**,
                                 const void**, size_t*) {
  return answered([&] {
    require_stream(stream);
    const bool captured = is_captured(stream);
    *status = captured ? CaptureStatus::kActive : CaptureStatus::kNone;
    if (id) *id = captured ? capture.id : 0;
  });
}

Result cuGraphInstantiateWithFlags(GraphExecObject** exec, const GraphObject* graph, uint64_t) {
  return answered([&] { *exec = new GraphExecObject{graph->works}; });
}
Result cuGraphLaunch(const GraphExecObject* exec, StreamHandle stream) {
  return answered([&] {
    require_stream(stream);
    require(!is_captured(stream), kNotSupported, "a graph in a graph");
    for (const Work& work : exec->works) work();
  });
}
Result cuGraphExecDestroy(GraphExecObject* exec) {
  return answered([&] { delete exec; });
}
Result cuGraphDestroy(GraphObject* graph) {
  return answered([&] { delete graph; });
}
}
#pragma GCC visibility pop

}  // namespace rapt::emulator
