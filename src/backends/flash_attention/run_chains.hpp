// How a plan's runs put their kernels on a stream by one call.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>

#include "backends/flash_attention/kernel_choice.hpp"
#include "launch/kernel_chain.hpp"

namespace rapt::flash_attention {

class RunChains {
 public:
  // Of a run: one for each tile, and one that merges.
  static constexpr size_t kMaxKernels = kNumTiles + 1;

  explicit RunChains(const cuda::Context& context) : context_(context) {}

  // Runs have so many kernels from now on, `any` one of them; none of the runs before is still to
  // be put on a stream. Makes a chain at most once for each number; where the driver refuses it,
  // kernels are launched one by one.
  void prepare(size_t num_kernels, const cuda::Kernel& any);

  // A chain, and the right to set it.
  struct Turn {
    cuda::KernelChain* chain = nullptr;
    std::unique_lock<std::mutex> lock = {};
    explicit operator bool() const { return chain; }
  };
  // Nothing where kernels are to be launched one by one: in a capture, beside another thread's run,
  // and on other streams than the first since prepare(), as a chain's launches follow each other
  // and those of streams do not.
  Turn take(cuda::Stream stream) const;

 private:
  const cuda::Context& context_;
  std::array<std::unique_ptr<cuda::KernelChain>, kMaxKernels> chains_;  // by length - 1
  cuda::KernelChain* chain_ = nullptr;                                  // of those
  mutable std::mutex mutex_;
  mutable std::optional<uintptr_t> stream_;  // the first since prepare()
};

}  // namespace rapt::flash_attention
