// What the processor's arithmetic units do at most: what kernels are compared with.
#pragma once

#include <cstdint>

#include "bench/threads.hpp"
#include "rapt/device.hpp"
#include "rapt/dtype.hpp"

namespace rapt::bench {

enum class Unit : uint8_t { kFma, kBf16Dot, kAmxTile };

// "fp32 FMA", "bf16 dot", "AMX tile".
const char* to_string(Unit unit);
// Whether code of that instruction-set level has the unit. All have kFma: below AVX2 it is a
// multiplication and an addition.
bool has(Unit unit, CpuIsa isa);
// The fastest unit that the level has for products of that element type.
Unit unit_for(DType dtype, CpuIsa isa);

// Multiply-adds in registers for about `seconds` on all threads; returns flop/s.
double peak_flops(Unit unit, CpuIsa isa, Threads& threads, double seconds);

}  // namespace rapt::bench
