// A CUDA graph as a program has it: its functions are called by no part of Rapt.
#pragma once

#include <functional>

#include "core/shared_library.hpp"
#include "launch/device.hpp"

namespace rapt::test {

// The calling thread's own default stream (CU_STREAM_PER_THREAD). The legacy one, null, cannot be
// captured.
inline void* const kThreadStream = reinterpret_cast<void*>(2);

class CudaGraph {
 public:
  // What `work` puts on kThreadStream, captured.
  CudaGraph(const cuda::Context& context, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() const;  // on kThreadStream

 private:
  // CUgraph and CUgraphExec: "CUDA Driver API", section "Graph Management".
  using Graph = void*;
  using Executable = void*;

  const cuda::Context& context_;
  cuda::Result (*launch_)(Executable, cuda::StreamHandle) = nullptr;
  cuda::Result (*destroy_)(Executable) = nullptr;
  Executable executable_ = nullptr;
};

}  // namespace rapt::test
