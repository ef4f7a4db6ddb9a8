#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "core/float16.hpp"
#include "simd_table.hpp"

namespace rapt::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<const SimdTable*> runnable_tables() {
  std::vector<const SimdTable*> all = {&kBaselineSimd};
#if defined(__x86_64__)
  for (const SimdTable* table : {&kAvx2Simd, &kAvx512Simd, &kAvx512Bf16Simd})
    if (table->isa <= host_cpu().isa) all.push_back(table);
#endif
  return all;
}

class Simd : public testing::TestWithParam<const SimdTable*> {
 protected:
  const SimdTable& simd() const { return *GetParam(); }

  using Map = void (*)(const float*, float*, int);
  using Exact = double (*)(double);
  // The largest error over the floats from `low` to `high` of both signs that `signs` asks for,
  // `step` representable values apart: in units of the result's last place.
  double worst_ulp(Map map, Exact exact, float low, float high, uint32_t step, int signs) {
    double worst = 0;
    std::vector<float> x, y;
    for (uint32_t bits = std::bit_cast<uint32_t>(low); bits <= std::bit_cast<uint32_t>(high);
         bits += step) {
      if (signs >= 0) x.push_back(std::bit_cast<float>(bits));
      if (signs <= 0) x.push_back(-std::bit_cast<float>(bits));
    }
    y.resize(x.size());
    map(x.data(), y.data(), static_cast<int>(x.size()));
    for (size_t i = 0; i < x.size(); i++) {
      const double want = exact(x[i]);
      const float nearest = std::fabs(static_cast<float>(want));
      const double ulp = std::nextafter(nearest, kInf) - nearest;
      const double error = std::fabs(y[i] - want) / ulp;
      worst = std::isnan(error) ? kInf : std::max(worst, error);
      if (worst == kInf) break;
    }
    return worst;
  }
};

TEST_P(Simd, exp2_is_accurate) {
  const Exact exact = [](double x) { return std::exp2(x); };
  const double below = worst_ulp(simd().exp2_accurate, exact, 1e-8f, 125.0f, 997, -1);
  const double above = worst_ulp(simd().exp2_accurate, exact, 1e-8f, 126.0f, 997, 1);
  std::printf("exp2_accurate: %.3f ulp below 0, %.3f above\n", below, above);
  EXPECT_LE(below, 2);
  EXPECT_LE(above, 2);
  // 3e-6 is 25 to 50 ulp.
  const double fast = worst_ulp(simd().exp2_fast, exact, 1e-8f, 125.0f, 997, 0);
  std::printf("exp2_fast: %.3f ulp\n", fast);
  EXPECT_LE(fast, 50);
}

TEST_P(Simd, exp2_keeps_its_edges) {
  const std::vector<float> x = {0.0f,    -0.0f,   -kInf,   kNan, -1e30f,
                                -500.0f, -200.0f, -150.0f, 1.0f, -1.0f};
  for (const auto map : {simd().exp2_accurate, simd().exp2_fast}) {
    std::vector<float> y(x.size());
    map(x.data(), y.data(), static_cast<int>(x.size()));
    EXPECT_NEAR(y[0], 1, map == simd().exp2_accurate ? 0 : 1e-5);
    EXPECT_EQ(y[1], y[0]);
    EXPECT_EQ(y[2], 0);
    EXPECT_TRUE(std::isnan(y[3]));
    for (int i : {4, 5, 6, 7}) EXPECT_EQ(y[i], 0) << x[i];
    EXPECT_NEAR(y[8], 2, 1e-5);
    EXPECT_NEAR(y[9], 0.5, 1e-5);
  }
}

TEST_P(Simd, tanh_is_accurate_for_tiny_and_huge_arguments) {
  const double worst = worst_ulp(
      simd().tanh, [](double x) { return std::tanh(x); }, 1e-37f, 3e38f, 9973, 0);
  std::printf("tanh: %.3f ulp\n", worst);
  EXPECT_LE(worst, 3);
  const float x[] = {kInf, -kInf, 0.0f, kNan};
  float y[4];
  simd().tanh(x, y, 4);
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], -1);
  EXPECT_EQ(y[2], 0);
  EXPECT_TRUE(std::isnan(y[3]));
}

// ldexp, from the formats' definitions.
float half_by_definition(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa ? kNan : sign * kInf;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

TEST_P(Simd, widens_every_16_bit_value_exactly_and_narrows_it_back) {
  std::vector<uint16_t> bits(65536 - 3), back(bits.size());  // not a multiple of any width
  for (size_t i = 0; i < bits.size(); i++) bits[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(bits.size());
  const int n = static_cast<int>(bits.size());
  simd().from_half(bits.data(), wide.data(), n);
  simd().to_half(wide.data(), back.data(), n);
  for (int i = 0; i < n; i++) {
    const float want = half_by_definition(bits[i]);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(half_by_definition(back[i]))) << i;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(want)) << i;
    ASSERT_EQ(back[i], bits[i]) << i;
  }
  simd().from_bfloat(bits.data(), wide.data(), n);
  simd().to_bfloat(wide.data(), back.data(), n);
  for (int i = 0; i < n; i++) {
    const uint32_t want = static_cast<uint32_t>(bits[i]) << 16;
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), want) << i;
    if (std::isnan(wide[i])) {
      ASSERT_TRUE((back[i] & 0x7fff) > 0x7f80) << i;
    } else {
      ASSERT_EQ(back[i], bits[i]) << i;
    }
  }
}

// Against the integer conversions of core, which core's own tests prove; every exponent, and the
// halfway cases with their neighbours.
TEST_P(Simd, narrows_to_nearest_even) {
  std::vector<float> x;
  for (uint32_t high = 0; high < 65536; high++)
    for (uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x5000u, 0x7fffu,
                         0x8000u, 0x8001u, 0xf000u, 0xffffu})
      x.push_back(std::bit_cast<float>(high << 16 | low));
  std::vector<uint16_t> y(x.size());
  const int n = static_cast<int>(x.size());
  simd().to_half(x.data(), y.data(), n);
  for (int i = 0; i < n; i++) {
    if (std::isnan(x[i])) continue;
    ASSERT_EQ(y[i], float_to_float16(x[i])) << x[i];
  }
  simd().to_bfloat(x.data(), y.data(), n);
  for (int i = 0; i < n; i++) {
    if (std::isnan(x[i])) continue;
    ASSERT_EQ(y[i], float_to_bfloat16(x[i])) << x[i];
  }
}

TEST_P(Simd, rounds_ties_to_even) {
  const float x[] = {0.5f, 1.5f, -0.5f, -1.5f, 2.5f, 0.49f, -199.5f, 125.51f};
  const float want[] = {0, 2, 0, -2, 2, 0, -200, 126};
  float y[8];
  simd().round_nearest(x, y, 8);
  for (int i = 0; i < 8; i++) EXPECT_EQ(y[i], want[i]) << x[i];
}

TEST_P(Simd, reduces_moves_and_masks_every_lane) {
  const int width = simd().width;
  for (int lane = 0; lane < width; lane++) {
    std::vector<float> x(width);
    for (int i = 0; i < width; i++) x[i] = static_cast<float>(i == lane ? 100 : -i);
    float sum = 0;
    for (float value : x) sum += value;
    EXPECT_EQ(simd().reduce_add(x.data()), sum);
    EXPECT_EQ(simd().reduce_max(x.data()), 100);
  }
  std::vector<uint32_t> matrix(width * width);
  for (size_t i = 0; i < matrix.size(); i++) matrix[i] = 0x7f800001u + static_cast<uint32_t>(i);
  std::vector<float> moved(matrix.size());  // signalling NaNs: bits must pass
  std::memcpy(moved.data(), matrix.data(), matrix.size() * 4);
  simd().transpose(moved.data());
  for (int i = 0; i < width; i++)
    for (int j = 0; j < width; j++) {
      uint32_t bits;
      std::memcpy(&bits, &moved[i * width + j], 4);
      EXPECT_EQ(bits, matrix[j * width + i]);
    }
  for (uint32_t bits : {0u, 1u, 0x5u, 0xau, 0xffffu, 0x8001u}) {
    std::vector<float> x(width, 3), y(width, 7);
    simd().masked_copy(x.data(), y.data(), bits);
    for (int i = 0; i < width; i++) EXPECT_EQ(y[i], bits >> i & 1 ? 3 : 7);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Simd, testing::ValuesIn(runnable_tables()),
                         [](const auto& test) { return to_string(test.param->isa); });

}  // namespace
}  // namespace rapt::test
