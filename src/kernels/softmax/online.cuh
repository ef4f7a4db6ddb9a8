// The online softmax of FlashAttention-2 (Dao 2023, algorithm 1): rows are weighed relative to the
// largest score so far; what came before is rescaled when a larger one comes.
//
// Lane l holds, of each 16 x 8 result tile, two columns of row l / 4 (half 0) and of row l / 4 + 8
// (half 1); the four lanes of a row share its state.
#pragma once

#include "ptx/math.cuh"
#include "ptx/threads.cuh"
#include "variant/visible.cuh"

namespace rapt::device {

// Of the four lanes that share a row.
DEVICE float row_max(float x) {
  x = fmaxf(x, shuffle_xor(x, 1));
  return fmaxf(x, shuffle_xor(x, 2));
}
DEVICE float row_sum(float x) {
  x += shuffle_xor(x, 1);
  return x + shuffle_xor(x, 2);
}

// Running state of one row. Scores are in units of `factor`: 1 / factor of log2 units.
struct SoftmaxRow {
  float max = -infinity();
  float sum = 0;  // this lane's part

  // Turns the row's scores in half kHalf of kTiles tiles into weights; returns what the output so
  // far decays by.
  template <int kHalf, int kTiles>
  DEVICE_MEMBER float weigh(float (&scores)[kTiles][4], float factor) {
    float top = max;
#pragma unroll
    for (int n = 0; n < kTiles; n++)
      top = fmaxf(top, fmaxf(scores[n][2 * kHalf], scores[n][2 * kHalf + 1]));
    top = row_max(top);
    // No key yet: every score is -inf, and any finite reference will do.
    const float reference = top == -infinity() ? 0 : top * factor;
    const float decay = exp2_fast(fmaf(max, factor, -reference));
    max = top;
    float total = 0;
#pragma unroll
    for (int n = 0; n < kTiles; n++)
#pragma unroll
      for (int i = 2 * kHalf; i < 2 * kHalf + 2; i++) {
        scores[n][i] = exp2_fast(fmaf(scores[n][i], factor, -reference));
        total += scores[n][i];
      }
    sum = fmaf(sum, decay, total);
    return decay;
  }
};

}  // namespace rapt::device
