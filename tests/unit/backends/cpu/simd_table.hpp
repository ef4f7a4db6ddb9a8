// The simd wrappers of one instruction set as functions over arrays of any length, so that one test
// file serves all of them and nothing of GoogleTest is compiled with their flags.
#pragma once

#include <cstdint>

#include "rapt/device.hpp"

namespace rapt::test {

struct SimdTable {
  CpuIsa isa;
  int width;
  void (*exp2_accurate)(const float* x, float* y, int n);
  void (*exp2_fast)(const float* x, float* y, int n);
  void (*tanh)(const float* x, float* y, int n);
  void (*round_nearest)(const float* x, float* y, int n);
  void (*from_half)(const uint16_t* x, float* y, int n);
  void (*from_bfloat)(const uint16_t* x, float* y, int n);
  void (*to_half)(const float* x, uint16_t* y, int n);
  void (*to_bfloat)(const float* x, uint16_t* y, int n);
  // Of `width` floats.
  float (*reduce_add)(const float* x);
  float (*reduce_max)(const float* x);
  // 32-bit elements [width][width], in place.
  void (*transpose)(float* x);
  // y[i] = bit i of `bits` ? x[i] : 0, through a masked load; then a masked store of `width`
  // floats.
  void (*masked_copy)(const float* x, float* y, uint32_t bits);
};

extern const SimdTable kBaselineSimd;
#if defined(__x86_64__)
extern const SimdTable kAvx2Simd, kAvx512Simd, kAvx512Bf16Simd;
#endif

}  // namespace rapt::test
