#include "llm/model/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace llm {

std::vector<double> rope_frequencies(double theta, int64_t head_dim) {
  std::vector<double> frequencies(head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  return frequencies;
}

void scale_frequencies(const Llama3Scaling& scaling, std::vector<double>& frequencies) {
  for (double& frequency : frequencies) {
    const double turns = scaling.original_context_length * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp(
        (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor),
        0.0, 1.0);
    frequency *= kept + (1 - kept) / scaling.factor;
  }
}

}  // namespace llm
