// Division of what seldom needs 64 bits.
#pragma once

#include "ptx/types.cuh"

namespace rapt::device {

// a / b of numbers that are not negative: in 32 bits, where they suffice, a fraction of the
// instructions.
DEVICE i64 divide(i64 a, i64 b) {
  if (((a | b) >> 32) == 0) return static_cast<u32>(a) / static_cast<u32>(b);
  return a / b;
}

}  // namespace rapt::device
