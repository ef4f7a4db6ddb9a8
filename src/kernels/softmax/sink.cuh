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

// What a row comes to once all its keys are in.
struct ClosedRow {
  float factor;  // of its outputs
  float lse;     // natural logarithm; -inf: no key
};

// `top`: the reference of `sum`, in log2 units.
DEVICE ClosedRow close_row(float top, float sum) {
  if (sum == 0) return {0, -infinity()};
  return {1 / sum, (top + log2_fast(sum)) * kLn2};
}
// The same with a sink, a natural logarithm.
DEVICE ClosedRow close_row(float top, float sum, float natural) {
  const float sink = sink_in_log2(natural), higher = sum == 0 ? sink : fmaxf(top, sink);
  if (higher == -infinity()) return close_row(top, sum);
  const float weight = sum == 0 ? 0 : exp2_fast(top - higher);  // 0 * inf would be NaN
  const float all = sum * weight + (sink == higher ? 1 : exp2_fast(sink - higher));
  return {weight / all, lse_with_sink(all, higher, natural, sink)};
}

}  // namespace rapt::device
