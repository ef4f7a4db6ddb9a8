#include "select/priority.hpp"

namespace rapt {
namespace {

constexpr Priority on_cpu() {
  using enum BackendId;
  return {kCpu,      kReference, kFlashAttention, kFlashInfer,
          kPortable, kFlex,      kTurboQuant,     kPagedAttention};
}

constexpr Priority on_cuda() {
  using enum BackendId;
  return {kFlashAttention, kFlashInfer,     kPortable, kFlex,
          kTurboQuant,     kPagedAttention, kCpu,      kReference};
}

// FlashInfer brings the TRT-LLM kernels there, for causal attention.
constexpr Priority on_blackwell() {
  using enum BackendId;
  return {kFlashInfer, kFlashAttention, kPortable, kFlex,
          kTurboQuant, kPagedAttention, kCpu,      kReference};
}

constexpr Priority kOnCpu = on_cpu(), kOnCuda = on_cuda(), kOnBlackwell = on_blackwell();

}  // namespace

const Priority& priority(const Request& request) {
  if (!request.on_cuda()) return kOnCpu;
  return request.sm_major() == 10 && request.spec.is_causal() ? kOnBlackwell : kOnCuda;
}

}  // namespace rapt
