#include "backends/cpu/simd/baseline.hpp"

#include "backends/cpu/isa/tables.hpp"

namespace rapt::cpu {

const Kernels kBaselineKernels = {
    .isa = CpuIsa::kBaseline,
    .prefill = nullptr,
    .decode = nullptr,
    .scratch_bytes = nullptr,
    .max_decode_rows = 0,
};

}  // namespace rapt::cpu
