#include "launch/kernel_chain.hpp"

namespace rapt::cuda {
namespace {

// From here on, NVIDIA says, a graph without branches is launched in a time that hardly grows with
// its length. Measured with 13.0 alone.
constexpr int32_t kQuickVersion = 12060;
// Of a kernel's parameters, all together ("CUDA C++ Programming Guide", "Function Parameters").
constexpr size_t kMaxParameterBytes = 32764;

}  // namespace

bool KernelChain::is_supported(const Driver& driver) {
  return driver.version >= kQuickVersion && driver.cuGraphCreate &&
         driver.cuGraphAddKernelNode_v2 && driver.cuGraphInstantiateWithFlags &&
         driver.cuGraphExecKernelNodeSetParams_v2 && driver.cuGraphLaunch &&
         driver.cuGraphExecDestroy && driver.cuGraphDestroy;
}

KernelChain::KernelChain(const Context& context, size_t length, const Kernel& any)
    : context_(context), nodes_(length) {
  const Driver& driver = context.driver();
  // Until they are set: a thread that is given nothing, and never launched.
  std::vector<std::byte> nothing(kMaxParameterBytes);
  std::vector<void*> arguments(any.parameter_bytes().size() + 1, nothing.data());
  KernelNodeParams params{};
  params.function = any.handle();
  params.grid_x = params.grid_y = params.grid_z = 1;
  params.block_x = params.block_y = params.block_z = 1;
  params.parameters = arguments.data();
  try {
    driver.check(driver.cuGraphCreate(&graph_, 0), "cuGraphCreate");
    for (size_t i = 0; i < length; i++)
      driver.check(driver.cuGraphAddKernelNode_v2(&nodes_[i], graph_, i ? &nodes_[i - 1] : nullptr,
                                                  i ? 1 : 0, &params),
                   "cuGraphAddKernelNode_v2", " of ", any.name());
    driver.check(driver.cuGraphInstantiateWithFlags(&exec_, graph_, 0),
                 "cuGraphInstantiateWithFlags", " of ", length, " kernels");
  } catch (...) {
    if (graph_) driver.cuGraphDestroy(graph_);
    throw;
  }
}

KernelChain::~KernelChain() {
  try {
    const CurrentContext current(context_);
    context_.driver().cuGraphExecDestroy(exec_);  // once its launches are done
    context_.driver().cuGraphDestroy(graph_);
  } catch (const Error&) {  // the driver is gone, and the graph with it
  }
}

void KernelChain::set_with(size_t index, const Kernel& kernel, const LaunchShape& shape,
                           const void* const* arguments, std::span<const size_t> argument_bytes) {
  kernel.check_launch(shape, argument_bytes);
  check(shape.cluster.x == 1 && shape.cluster.y == 1 && shape.cluster.z == 1, "kernel ",
        kernel.name(), ": a cluster of blocks in a chain: launch it by itself");
  KernelNodeParams params{};
  params.function = kernel.handle();
  params.grid_x = shape.grid.x, params.grid_y = shape.grid.y, params.grid_z = shape.grid.z;
  params.block_x = shape.block.x, params.block_y = shape.block.y, params.block_z = shape.block.z;
  params.shared_bytes = shape.shared_bytes;
  params.parameters = const_cast<void**>(arguments);  // the driver only reads them
  const Driver& driver = context_.driver();
  driver.check(driver.cuGraphExecKernelNodeSetParams_v2(exec_, nodes_.at(index), &params),
               "cuGraphExecKernelNodeSetParams_v2", " of ", kernel.name());
}

void KernelChain::launch(Stream stream) const {
  const Driver& driver = context_.driver();
  driver.check(driver.cuGraphLaunch(exec_, stream.handle), "cuGraphLaunch", " of ", nodes_.size(),
               " kernels");
}

}  // namespace rapt::cuda
