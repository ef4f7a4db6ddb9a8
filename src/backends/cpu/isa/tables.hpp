// One table of kernels for each instruction set that this build knows, each defined in its own
// file.
#pragma once

#include "backends/cpu/kernels.hpp"

namespace rapt::cpu {

extern const Kernels kBaselineKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels, kAvx512Kernels, kAvx512Bf16Kernels, kAmxBf16Kernels,
    kAmxStandInKernels;
#endif

}  // namespace rapt::cpu
