#include "backends/cpu/simd/avx512_bf16.hpp"

#include "backends/cpu/bf16_rows-inl.hpp"
#include "backends/cpu/decode-inl.hpp"
#include "backends/cpu/isa/tables.hpp"
#include "backends/cpu/pair_products-inl.hpp"
#include "backends/cpu/prefill-inl.hpp"

namespace rapt::cpu {
const Kernels kAvx512Bf16Kernels = {
    .isa = CpuIsa::kAvx512Bf16,
    .prefill = prefill<PairProducts>,
    .decode = decode,
    .prefill_scratch_bytes = prefill_scratch_bytes<PairProducts>,
    .decode_scratch_bytes = decode_scratch_bytes,
    .max_decode_rows = kMaxDecodeRows,
    .max_prefill_rows = kMaxPrefillRows,
};

}  // namespace rapt::cpu
