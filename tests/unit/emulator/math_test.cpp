#include "ptx/math.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rapt::device {
namespace {

TEST(EmulatedMath, exp2_is_as_exact_as_the_instruction) {
  for (double x = -126; x < 128; x += 0.00917) {
    const auto rounded = static_cast<float>(x);
    const double exact = std::exp2(static_cast<double>(rounded));
    EXPECT_NEAR(exp2_fast(rounded) / exact, 1, 0x1p-22) << x;
  }
  EXPECT_EQ(exp2_fast(0), 1);
  EXPECT_EQ(exp2_fast(-infinity()), 0);
  EXPECT_EQ(exp2_fast(-127), 0);
  EXPECT_EQ(exp2_fast(-1e9f), 0);
  EXPECT_EQ(exp2_fast(128), infinity());
  EXPECT_EQ(exp2_fast(infinity()), infinity());
  EXPECT_TRUE(std::isnan(exp2_fast(std::numeric_limits<float>::quiet_NaN())));
}

TEST(EmulatedMath, log2_and_tanh_are_the_functions) {
  EXPECT_EQ(log2_fast(8), 3);
  EXPECT_EQ(log2_fast(0), -infinity());
  EXPECT_NEAR(tanh_fast(0.5f), std::tanh(0.5), 1e-6);
}

TEST(EmulatedMath, packs_the_lower_element_into_the_lower_half) {
  EXPECT_EQ(Bf16::pack(1.f, -2.f), 0xC0003F80);
  EXPECT_EQ(F16::pack(1.f, -2.f), 0xC0003C00);
  EXPECT_EQ(unpack_low<Bf16>(0xC0003F80), 1.f);
  EXPECT_EQ(unpack_high<Bf16>(0xC0003F80), -2.f);
  EXPECT_EQ(unpack_low<F16>(0xC0003C00), 1.f);
  EXPECT_EQ(unpack_high<F16>(0xC0003C00), -2.f);
}

TEST(EmulatedMath, packs_to_the_nearest_even) {
  EXPECT_EQ(Bf16::pack(0x1.01p0f, 0x1.03p0f), 0x3F823F80u);   // ties, bf16 keeps 8 bits
  EXPECT_EQ(F16::pack(0x1.002p0f, 0x1.006p0f), 0x3C023C00u);  // ties, fp16 keeps 11
  EXPECT_EQ(F16::pack(65520.f, 0x1p-25f), 0x00007C00u);       // overflow, underflow
}

TEST(EmulatedMath, maximum_of_a_number_and_a_nan_is_the_number) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(fmaxf(nan, 1), 1);
  EXPECT_EQ(fmaxf(1, nan), 1);
  EXPECT_EQ(fminf(nan, 1), 1);
  EXPECT_EQ(max(3, -4), 3);
  EXPECT_EQ(min(3u, 4u), 3u);
}

}  // namespace
}  // namespace rapt::device
