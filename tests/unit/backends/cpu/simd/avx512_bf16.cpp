#include "backends/cpu/simd/avx512_bf16.hpp"

#include "table-inl.hpp"

namespace rapt::test {
const SimdTable kAvx512Bf16Simd = table_for(CpuIsa::kAvx512Bf16);
}  // namespace rapt::test
