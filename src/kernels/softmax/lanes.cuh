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

// Of four neighbouring lanes, word i of lane j and word j of lane i change places.
DEVICE void transpose_lanes(u32 (&words)[4]) {
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = lane_index() & distance;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & distance) continue;
      u32 &low = words[i], &high = words[i + distance];
      const u32 got = float_bits(shuffle_xor(bits_float(upper ? low : high), distance));
      (upper ? low : high) = got;
    }
  }
}

}  // namespace rapt::device
