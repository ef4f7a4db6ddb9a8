#include "backends/cpu/simd/avx2.hpp"

#include "backends/cpu/bf16_split_rows-inl.hpp"
#include "backends/cpu/decode-inl.hpp"
#include "backends/cpu/isa/tables.hpp"
#include "backends/cpu/prefill-inl.hpp"

namespace rapt::cpu {
const Kernels kAvx2Kernels = {
    .isa = CpuIsa::kAvx2,
    .prefill = prefill<FloatProducts>,
    .decode = decode,
    .prefill_scratch_bytes = prefill_scratch_bytes<FloatProducts>,
    .decode_scratch_bytes = decode_scratch_bytes,
    .max_decode_rows = kMaxDecodeRows,
    .max_prefill_rows = kMaxPrefillRows,
};

}  // namespace rapt::cpu
