#include "support/cuda_graph.hpp"

namespace rapt::test {

CudaGraph::CudaGraph(const cuda::Context& context, const std::function<void()>& work)
    : context_(context) {
  const cuda::Driver& driver = context.driver();
  const SharedLibrary library({{driver.path}, "needed for a graph", "use another driver"});
  cuda::Result (*begin)(cuda::StreamHandle, int32_t mode) = nullptr;
  cuda::Result (*end)(cuda::StreamHandle, Graph*) = nullptr;
  cuda::Result (*instantiate)(Executable*, Graph, uint64_t flags) = nullptr;
  cuda::Result (*destroy_graph)(Graph) = nullptr;
  library.find(begin, "cuStreamBeginCapture_v2");
  library.find(end, "cuStreamEndCapture");
  library.find(instantiate, "cuGraphInstantiateWithFlags");
  library.find(destroy_graph, "cuGraphDestroy");
  library.find(launch_, "cuGraphLaunch");
  library.find(destroy_, "cuGraphExecDestroy");

  const cuda::CurrentContext current(context);
  const auto stream = static_cast<cuda::StreamHandle>(kThreadStream);
  // Of this thread, which must not do what a capture forbids (cudaStreamCaptureModeThreadLocal).
  constexpr int32_t kThreadLocal = 1;
  driver.check(begin(stream, kThreadLocal), "cuStreamBeginCapture_v2");
  Graph graph = nullptr;
  try {
    work();
  } catch (...) {
    if (end(stream, &graph) == cuda::kSuccess) destroy_graph(graph);
    throw;
  }
  driver.check(end(stream, &graph), "cuStreamEndCapture");
  driver.check(instantiate(&executable_, graph, 0), "cuGraphInstantiateWithFlags");
  driver.check(destroy_graph(graph), "cuGraphDestroy");
}

CudaGraph::~CudaGraph() {
  const cuda::CurrentContext current(context_);
  destroy_(executable_);
}

void CudaGraph::launch() const {
  const cuda::CurrentContext current(context_);
  context_.driver().check(launch_(executable_, static_cast<cuda::StreamHandle>(kThreadStream)),
                          "cuGraphLaunch");
}

}  // namespace rapt::test
