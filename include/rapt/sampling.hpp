// Sampling on the host: temperature -> top-k -> top-p -> min-p, renormalised after each.
#pragma once

#include <cstdint>
#include <span>

#include "rapt/context.hpp"
#include "rapt/export.hpp"
#include "rapt/tensor.hpp"

namespace rapt {

struct SamplingParams {
  float temperature = 1;  // 0 = arg-max
  int32_t top_k = 0;  // <= 0 or >= vocabulary = off; keeps exactly k: ties go to the lower index
  float top_p =
      1;  // >= 1 = off; <= 0 keeps the arg-max; otherwise the smallest set with mass >= top_p
  float min_p = 0;      // <= 0 = off; keeps tokens with probability >= min_p * the largest
  uint64_t seed = 0;    // with offset: the key of the row's Philox-4x32-10 stream
  uint64_t offset = 0;  // the draw's number within the stream
};

enum class SampleStatus : uint8_t { kOk, kNan, kNothingLeft };

// One token per row of logits [rows, vocab] (fp32, fp16 or bf16); params, tokens and statuses have
// one entry per row. A row with a NaN, or with no token that can be drawn, gets token -1 and its
// status; other rows are not affected. A row gives the same token alone or in any batch.
RAPT_API void sample(Context& context, const TensorView& logits,
                     std::span<const SamplingParams> params, std::span<int32_t> tokens,
                     std::span<SampleStatus> statuses);

}  // namespace rapt
