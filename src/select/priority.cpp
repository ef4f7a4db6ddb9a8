#include "select/priority.hpp"

namespace rapt {
namespace {

using enum BackendId;

constexpr Priority kOnCpu{kCpu,      kReference, kFlashAttention, kFlashInfer,
                          kPortable, kFlex,      kTurboQuant,     kPagedAttention};
constexpr Priority kOnCuda{kFlashAttention, kFlashInfer,     kPortable, kFlex,
                           kTurboQuant,     kPagedAttention, kCpu,      kReference};
// FlashInfer brings the TRT-LLM kernels there, for causal attention.
constexpr Priority kOnBlackwell{kFlashInfer, kFlashAttention, kPortable, kFlex,
                                kTurboQuant, kPagedAttention, kCpu,      kReference};

}  // namespace

const Priority& priority(const Request& request) {
  if (!request.on_cuda()) return kOnCpu;
  return request.sm_major() == 10 && request.spec.is_causal() ? kOnBlackwell : kOnCuda;
}

}  // namespace rapt
