#include "backends/flash_attention/run_chains.hpp"

namespace rapt::flash_attention {

void RunChains::prepare(size_t num_kernels, const cuda::Kernel& any) {
  chain_ = nullptr;
  stream_.reset();
  if (num_kernels > kMaxKernels || !cuda::KernelChain::is_supported(context_.driver())) return;
  std::unique_ptr<cuda::KernelChain>& chain = chains_[num_kernels - 1];
  if (!chain) {
    try {
      const cuda::CurrentContext current(context_);
      chain = std::make_unique<cuda::KernelChain>(context_, num_kernels, any);
    } catch (const Error&) {
      return;
    }
  }
  chain_ = chain.get();
}

RunChains::Turn RunChains::take(cuda::Stream stream) const {
  if (!chain_ || cuda::capture_of(context_.driver(), stream).active()) return {};
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return {};
  if (!stream_) stream_ = identity_of(stream);
  if (stream_ != identity_of(stream)) return {};
  return {chain_, std::move(lock)};
}

}  // namespace rapt::flash_attention
