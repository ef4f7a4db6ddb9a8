#include "sampling/philox.hpp"

#include <gtest/gtest.h>

namespace rapt {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers that Random123 publishes for philox4x32 with 10 rounds.
TEST(Philox, gives_the_published_answers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, uniform_uses_the_whole_seed_and_offset) {
  const double draw = philox_uniform(1, 1);
  EXPECT_NE(draw, philox_uniform(1 + (1ull << 32), 1));
  EXPECT_NE(draw, philox_uniform(1, 1 + (1ull << 32)));
  EXPECT_NE(draw, philox_uniform(2, 1));
  EXPECT_NE(draw, philox_uniform(1, 2));
}

TEST(Philox, uniform_is_the_top_53_bits_of_the_first_two_words) {
  EXPECT_DOUBLE_EQ(philox_uniform(0, 0), 0x6627e8d5e169c58dull / 0x1p64);
}

// Mean 1/2 and variance 1/12; 100,000 draws put the mean's standard error at 0.0009.
TEST(Philox, uniform_has_the_moments_of_a_uniform_draw) {
  constexpr int kDraws = 100000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; i++) {
    const double draw = philox_uniform(42, i);
    ASSERT_GE(draw, 0);
    ASSERT_LT(draw, 1);
    sum += draw;
    squares += draw * draw;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.004);
  EXPECT_NEAR(squares / kDraws - sum / kDraws * (sum / kDraws), 1.0 / 12, 0.002);
}

}  // namespace
}  // namespace rapt
