#include "llm/engine/kernels.hpp"

namespace llm {

namespace baseline {
extern const Kernels kKernels;
}
#if defined(LLM_HAS_X86)
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
#endif

const Kernels& kernels_for(rapt::CpuIsa isa) {
#if defined(LLM_HAS_X86)
  if (isa >= rapt::CpuIsa::kAvx512) return avx512::kKernels;
  if (isa >= rapt::CpuIsa::kAvx2) return avx2::kKernels;
#endif
  static_cast<void>(isa);
  return baseline::kKernels;
}

}  // namespace llm
