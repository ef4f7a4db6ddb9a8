// Elements of tensors as numbers, by arithmetic of its own: the tests do not trust src/core.
#pragma once

#include "rapt/dtype.hpp"

namespace rapt::test {

// Largest relative error of rounding to the dtype: 2^-24, 2^-11, 2^-8 for fp32, fp16, bf16.
double unit_roundoff(DType dtype);
// The nearest value of the dtype (ties to even, overflow to infinity, subnormals kept).
double round_to(DType dtype, double value);

// One element of memory; fp32, fp16 and bf16 only. `value` is rounded.
void store(DType dtype, void* at, double value);
float load(DType dtype, const void* at);

}  // namespace rapt::test
