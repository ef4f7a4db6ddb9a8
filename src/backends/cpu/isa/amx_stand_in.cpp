// The AMX kernels on plain code in place of tiles.
#include "backends/cpu/simd/avx512_bf16.hpp"
#include "backends/cpu/simd/tile_stand_in.hpp"

#include "backends/cpu/amx-inl.hpp"
#include "backends/cpu/amx_decode-inl.hpp"
#include "backends/cpu/isa/tables.hpp"

namespace rapt::cpu {

const Kernels kAmxStandInKernels = {
    .isa = CpuIsa::kAmxBf16,
    .prefill = amx_prefill,
    .decode = amx_decode,
    .prefill_scratch_bytes = amx_scratch_bytes,
    .decode_scratch_bytes = decode_scratch_bytes,
    .max_decode_rows = kMaxDecodeRows,
    .max_prefill_rows = kMaxPrefillRows,
};

}  // namespace rapt::cpu
