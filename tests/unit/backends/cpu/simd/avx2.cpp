#include "backends/cpu/simd/avx2.hpp"

#include "table-inl.hpp"

namespace rapt::test {
const SimdTable kAvx2Simd = table_for(CpuIsa::kAvx2);
}  // namespace rapt::test
