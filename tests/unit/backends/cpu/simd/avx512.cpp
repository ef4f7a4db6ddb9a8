#include "backends/cpu/simd/avx512.hpp"

#include "table-inl.hpp"

namespace rapt::test {
const SimdTable kAvx512Simd = table_for(CpuIsa::kAvx512);
}  // namespace rapt::test
