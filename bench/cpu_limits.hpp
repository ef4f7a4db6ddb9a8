// What a processor can do at most: the figures that kernels are measured against, in the same run.
#pragma once

#include <cstdint>

namespace rapt::bench {

// Arithmetic units whose peak can be measured here.
enum class Unit : uint8_t { kFma, kBf16Dot, kAmxTile };
const char* to_string(Unit unit);
bool has(Unit unit);

// Multiply-adds in registers for about `seconds` on `num_threads` threads; returns flop/s.
double peak_flops(Unit unit, int num_threads, double seconds);

}  // namespace rapt::bench
