#include "llm/model/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace llm {
namespace {

TEST(Rope, frequencies_fall_from_one_by_equal_ratios) {
  const auto frequencies = rope_frequencies(10000, 8);
  ASSERT_EQ(frequencies.size(), 4u);
  EXPECT_DOUBLE_EQ(frequencies[0], 1);
  EXPECT_DOUBLE_EQ(frequencies[1], 0.1);
  EXPECT_DOUBLE_EQ(frequencies[2], 0.01);
  EXPECT_DOUBLE_EQ(frequencies[3], 0.001);
}

// Llama 3.1's numbers: by wavelength, as its authors describe the rule.
TEST(Rope, llama3_scaling_slows_long_waves_only) {
  const auto plain = rope_frequencies(500000, 128);
  auto scaled = plain;
  scale_frequencies(Llama3Scaling{8, 1, 4, 8192}, scaled);
  int kept = 0, slowed = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 8192.0 / 4) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i]);
      ++kept;
    } else if (wavelength > 8192.0) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8);
      ++slowed;
    } else {
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      EXPECT_NEAR(scaled[i], (1 - smooth) * plain[i] / 8 + smooth * plain[i], 1e-15);
    }
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(slowed, 29);
}

}  // namespace
}  // namespace llm
