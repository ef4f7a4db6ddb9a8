// Kernels that one call puts on a stream, to run one after the other.
#pragma once

#include <cstddef>
#include <vector>

#include "launch/kernel.hpp"

namespace rapt::cuda {

// A graph with a node for each kernel, whose kernels, shapes and arguments are set before each
// launch: "CUDA Driver API", section "Graph Management". A chain of two takes the host less
// time than the launch of one kernel (docs/notes/2026-12-01-kernel-chain.md).
// For one thread at a time. A launch may be set while those before it still run; they run one
// after the other, also on several streams.
class KernelChain {
 public:
  // Whether the driver has all that it takes, and launches chains quickly: CUDA 12.6 and later.
  static bool is_supported(const Driver& driver);

  // Of so many kernels. `any` is one of their context, by which nodes are made; needs that context
  // current. Throws Error(kOutOfMemory) or Error(kDevice) where the driver refuses it.
  KernelChain(const Context& context, size_t length, const Kernel& any);
  ~KernelChain();
  KernelChain(const KernelChain&) = delete;
  KernelChain& operator=(const KernelChain&) = delete;

  // Kernel `index` of the next launches. The arguments are copied; the kernels run one after the
  // other, whatever shape.overlaps_previous allows. Throws as launch() of a kernel
  // does, and Error(kInvalidArgument) for a cluster, which nodes keep from when they were made.
  template <typename... Args>
  void set(size_t index, const Kernel& kernel, const LaunchShape& shape, const Args&... args) {
    const Arguments<Args...> arguments(args...);
    set_with(index, kernel, shape, arguments.pointers, arguments.kBytes);
  }
  // Every kernel has been set. The stream is not being captured.
  void launch(Stream stream) const;

 private:
  void set_with(size_t index, const Kernel& kernel, const LaunchShape& shape,
                const void* const* arguments, std::span<const size_t> argument_bytes);

  const Context& context_;
  GraphHandle graph_ = nullptr;
  std::vector<GraphNodeHandle> nodes_;
  GraphExecHandle exec_ = nullptr;
};

}  // namespace rapt::cuda
