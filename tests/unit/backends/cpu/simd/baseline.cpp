#include "backends/cpu/simd/baseline.hpp"

#include "table-inl.hpp"

namespace rapt::test {
const SimdTable kBaselineSimd = table_for(CpuIsa::kBaseline);
}  // namespace rapt::test
