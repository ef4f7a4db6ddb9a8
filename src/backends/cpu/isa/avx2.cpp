#include "backends/cpu/simd/avx2.hpp"

#include "backends/cpu/isa/tables.hpp"

namespace rapt::cpu {

const Kernels kAvx2Kernels = {
    .isa = CpuIsa::kAvx2,
    .prefill = nullptr,
    .decode = nullptr,
    .scratch_bytes = nullptr,
    .max_decode_rows = 0,
};

}  // namespace rapt::cpu
