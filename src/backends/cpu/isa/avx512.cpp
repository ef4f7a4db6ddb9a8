#include "backends/cpu/simd/avx512.hpp"

#include "backends/cpu/isa/tables.hpp"

namespace rapt::cpu {

const Kernels kAvx512Kernels = {
    .isa = CpuIsa::kAvx512,
    .prefill = nullptr,
    .decode = nullptr,
    .scratch_bytes = nullptr,
    .max_decode_rows = 0,
};

}  // namespace rapt::cpu
