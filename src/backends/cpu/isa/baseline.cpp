#include "backends/cpu/simd/baseline.hpp"

#include "backends/cpu/isa/tables.hpp"
#include "backends/cpu/prefill-inl.hpp"

namespace rapt::cpu {

const Kernels kBaselineKernels = {
    .isa = CpuIsa::kBaseline,
    .prefill = prefill,
    .decode = nullptr,
    .scratch_bytes = prefill_scratch_bytes,
    .max_decode_rows = 0,
};

}  // namespace rapt::cpu
