#include "emulator/driver/graph.hpp"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/driver/context.hpp"
#include "emulator/driver/module.hpp"
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
using cuda::GraphNodeHandle;
using cuda::GraphObject;
using cuda::KernelNodeParams;
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

// A node is known by its number, from 1.
GraphNodeHandle node_of(size_t number) {
  return reinterpret_cast<GraphNodeHandle>(number);
}
Work& work_at(GraphExecObject& exec, GraphNodeHandle node) {
  const auto number = reinterpret_cast<uintptr_t>(node);
  require(number >= 1 && number <= exec.works.size(), cuda::kInvalidValue, "no node of the graph");
  return exec.works[number - 1];
}

Work kernel_work(const KernelNodeParams& params) {
  require(!params.extra && !params.kernel, kNotSupported,
          "parameters in one block, and kernels of libraries");
  require(!params.context || params.context == &current_context(), kNotSupported,
          "a kernel of another context than the current one");
  return work_of({.grid_x = params.grid_x,
                  .grid_y = params.grid_y,
                  .grid_z = params.grid_z,
                  .block_x = params.block_x,
                  .block_y = params.block_y,
                  .block_z = params.block_z,
                  .shared_bytes = params.shared_bytes,
                  .stream = nullptr,
                  .attributes = nullptr,
                  .num_attributes = 0},
                 params.function, params.parameters);
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

Result cuGraphCreate(GraphObject** graph, uint32_t) {
  return answered([&] { *graph = new GraphObject; });
}
Result cuGraphAddKernelNode_v2(GraphNodeHandle* node, GraphObject* graph,
                               const GraphNodeHandle* after, size_t num_after,
                               const KernelNodeParams* params) {
  return answered([&] {
    const size_t before = graph->works.size();
    require(num_after == (before > 0) && (num_after == 0 || *after == node_of(before)),
            kNotSupported, "a graph that is no chain");
    graph->works.push_back(kernel_work(*params));
    *node = node_of(before + 1);
  });
}
Result cuGraphExecKernelNodeSetParams_v2(GraphExecObject* exec, GraphNodeHandle node,
                                         const KernelNodeParams* params) {
  return answered([&] { work_at(*exec, node) = kernel_work(*params); });
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
