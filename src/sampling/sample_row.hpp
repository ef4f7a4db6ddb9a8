// One row of logits to one token: a pure function of the row and its parameters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rapt/sampling.hpp"

namespace rapt {

struct SampledToken {
  int32_t token = -1;
  SampleStatus status = SampleStatus::kOk;
};

SampledToken sample_row(std::span<const float> logits, const SamplingParams& params);

// What the filters leave, for a row without NaN that has a finite maximum.
struct Candidates {
  std::vector<int32_t> tokens;  // ascending
  std::vector<float> weights;   // exp((logit - max) / temperature), one for each of them
};

// temperature > 0.
Candidates filter_row(std::span<const float> logits, const SamplingParams& params);

}  // namespace rapt
