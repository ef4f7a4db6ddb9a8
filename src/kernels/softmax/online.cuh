// The online softmax of FlashAttention-2 (Dao 2023, algorithm 1): rows are weighed relative to a
// large score among those so far; what came before is rescaled when a much larger one comes, as
// FlashAttention-4 does it.
//
// Lane l holds, of each 16 x 8 result tile, two columns of row l / 4 (half 0) and of row l / 4 + 8
// (half 1); the four lanes of a row share its state.
#pragma once

#include "ptx/math.cuh"
#include "softmax/lanes.cuh"

namespace rapt::device {

// log2 of how far the reference may lag behind the largest score before the output is rescaled:
// weights stay below 2^8, which fp32 sums and 16-bit products bear.
constexpr float kMaxLag = 8;

// log2 units; the rounding of a larger one is visible, and of 2^31 more than weights bear.
constexpr float kMostReference = 1 << 16;

constexpr int kRowLanes = 4;  // that share a row

// Running state of one row. Scores are in units of `factor`: 1 / factor of log2 units.
struct SoftmaxRow {
  float max = -infinity();  // the reference
  float sum = 0;            // this lane's part

  // In log2 units, rounded, as weights are relative to it. No key yet: every score is -inf, and any
  // finite reference will do.
  METHOD float reference(float factor) const { return max == -infinity() ? 0 : max * factor; }

  // Turns the row's scores in half kHalf of kTiles tiles into weights; returns what the output so
  // far decays by.
  template <int kHalf, int kTiles>
  METHOD float weigh(float (&scores)[kTiles][4], float factor) {
    float top = max;
#pragma unroll
    for (int n = 0; n < kTiles; n++)
      top = fmaxf(top, fmaxf(scores[n][2 * kHalf], scores[n][2 * kHalf + 1]));
    top = lanes_max<kRowLanes>(top);
    // -inf - -inf is no number and moves nothing.
    const bool moves = (top - max) * factor > kMaxLag;
    const float decay = moves ? exp2_fast((max - top) * factor) : 1;
    if (moves) max = top;
    float base = reference(factor);
    // The products below are not rounded as it is, so that the difference comes first. All of a
    // warp go one way: ptxas spills where each lane may go its own.
    if (any_lane(fabsf(base) > kMostReference)) {
      const float subtrahend = base == 0 ? 0 : max;
#pragma unroll
      for (int n = 0; n < kTiles; n++)
#pragma unroll
        for (int i = 2 * kHalf; i < 2 * kHalf + 2; i++) scores[n][i] -= subtrahend;
      base = 0;
    }
    float total = 0;
#pragma unroll
    for (int n = 0; n < kTiles; n++)
#pragma unroll
      for (int i = 2 * kHalf; i < 2 * kHalf + 2; i++) {
        scores[n][i] = exp2_fast(fmaf(scores[n][i], factor, -base));
        total += scores[n][i];
      }
    sum = fmaf(sum, decay, total);
    return decay;
  }
};

}  // namespace rapt::device
