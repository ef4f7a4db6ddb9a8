#include "llm/engine/rotations.hpp"

#include <cmath>

namespace llm {

// Angles are positions times frequencies, in fp64: at position 100,000 fp32 would be off by 0.004.
void find_rotations(const ModelConfig& config, const Step& step, ThreadPool& pool, float* cosines,
                    float* sines) {
  const int64_t pairs = config.head_dim / 2;
  pool.run_ranges(step.num_tokens(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = step.positions[static_cast<size_t>(t)] *
                             config.rope_frequencies[static_cast<size_t>(i)];
        cosines[t * pairs + i] = static_cast<float>(std::cos(angle));
        sines[t * pairs + i] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

}  // namespace llm
