// Which table serves an instruction-set level.
#include "backends/cpu/kernels.hpp"

#include "backends/cpu/isa/tables.hpp"

namespace rapt::cpu {

const Kernels& kernels(CpuIsa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case CpuIsa::kAmxBf16:
      return kAmxBf16Kernels;
    case CpuIsa::kAvx512Bf16:
      return kAvx512Bf16Kernels;
    case CpuIsa::kAvx512:
      return kAvx512Kernels;
    case CpuIsa::kAvx2:
      return kAvx2Kernels;
    case CpuIsa::kBaseline:
      break;
  }
#endif
  return kBaselineKernels;
}

const Kernels* amx_stand_in() {
#if defined(__x86_64__)
  return &kAmxStandInKernels;
#else
  return nullptr;
#endif
}

}  // namespace rapt::cpu
