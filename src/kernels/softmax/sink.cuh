// A sink beside what a row's scores came to.
#pragma once

#include "ptx/math.cuh"
#include "softmax/lanes.cuh"

namespace rapt::device {

// In log2 units, of which the largest finite sinks have none: those become one that is larger, or
// smaller, than any score.
DEVICE float sink_in_log2(float sink) {
  const float largest = bits_float(0x7F7FFFFF);
  return fabsf(sink) == infinity() ? sink : fmaxf(fminf(sink * kLog2E, largest), -largest);
}

// e^lse is `sum` relative to 2^top; `top` is the sink's if they are equal, and then counts as it
// was given.
DEVICE float lse_with_sink(float sum, float top, float sink, float sink_log2) {
  const float log_sum = log2_fast(sum);
  return top == sink_log2 ? fmaf(log_sum, kLn2, sink) : (top + log_sum) * kLn2;
}

}  // namespace rapt::device
