#include "backends/cpu/simd/avx512_bf16.hpp"

#include "backends/cpu/isa/tables.hpp"

namespace rapt::cpu {

const Kernels kAvx512Bf16Kernels = {
    .isa = CpuIsa::kAvx512Bf16,
    .prefill = nullptr,
    .decode = nullptr,
    .scratch_bytes = nullptr,
    .max_decode_rows = 0,
};

}  // namespace rapt::cpu
