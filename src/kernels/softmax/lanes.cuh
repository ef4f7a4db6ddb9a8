// Maxima and sums over lanes, and the units of a softmax.
#pragma once

#include "ptx/math.cuh"
#include "ptx/threads.cuh"

namespace rapt::device {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

// Of the kLanes neighbouring lanes, a power of 2, that a lane is of: in all of them.
template <int kLanes>
DEVICE float lanes_max(float x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    x = fmaxf(x, shuffle_xor(x, distance));
  return x;
}
template <int kLanes>
DEVICE float lanes_sum(float x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) x += shuffle_xor(x, distance);
  return x;
}

}  // namespace rapt::device
