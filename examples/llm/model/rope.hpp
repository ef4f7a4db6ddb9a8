// The angles that RoPE turns a head's pairs by.
#pragma once

#include <cstdint>
#include <vector>

namespace llm {

// theta^(-2i / head_dim) for i in [0, head_dim / 2).
std::vector<double> rope_frequencies(double theta, int64_t head_dim);

// Llama 3.1's stretch to longer contexts: pairs that turn less than low_freq_factor times within
// the original context slow down by `factor`, those that turn more than high_freq_factor times
// stay, and between the two the slowdown fades linearly in the number of turns.
struct Llama3Scaling {
  double factor;
  double low_freq_factor;
  double high_freq_factor;
  double original_context_length;
};
void scale_frequencies(const Llama3Scaling& scaling, std::vector<double>& frequencies);

}  // namespace llm
