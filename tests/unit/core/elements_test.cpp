// fp16 and bf16, all 65536 values of each: what they mean, and what rounds to them.
#include "core/elements.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace rapt {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// What the bits say, by IEEE 754's definition: `mantissa_bits` of mantissa below an exponent with
// the given bias.
float meaning(uint16_t bits, int mantissa_bits, int bias) {
  const int exponent_bits = 15 - mantissa_bits;
  const int sign = bits >> 15, exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  if (exponent == (1 << exponent_bits) - 1) return mantissa ? std::nanf("") : sign ? -kInf : kInf;
  const double magnitude =
      exponent ? std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits)
               : std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return static_cast<float>(sign ? -magnitude : magnitude);
}

struct Format {
  DType dtype;
  int mantissa_bits, bias;
  uint16_t infinity;  // its bits; all below are finite
};
constexpr Format kFormats[] = {{DType::kFloat16, 10, 15, 0x7c00},
                               {DType::kBFloat16, 7, 127, 0x7f80}};

// A pair, for gcc looks at the fp32 branch too.
float load(const Format& format, uint16_t bits) {
  alignas(4) const uint16_t pair[2] = {bits, 0xdead};
  return load_element(pair, format.dtype, 0);
}

uint16_t rounded(const Format& format, float value) {
  alignas(4) uint16_t pair[2] = {0xdead, 0xdead};
  store_element(pair, format.dtype, 0, value);
  return pair[0];
}

TEST(Elements, every_bit_pattern_has_its_ieee_value_and_comes_back) {
  for (const Format& format : kFormats)
    for (int bits = 0; bits < 1 << 16; bits++) {
      const float value = load(format, static_cast<uint16_t>(bits));
      const float want = meaning(static_cast<uint16_t>(bits), format.mantissa_bits, format.bias);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(value));
        ASSERT_GT(rounded(format, value) & 0x7fff, format.infinity) << "NaN stays NaN";
        continue;
      }
      ASSERT_EQ(value, want);
      ASSERT_EQ(std::signbit(value), bits >> 15 == 1);
      ASSERT_EQ(rounded(format, value), bits);
    }
}

// Between neighbours a and b, everything below the middle goes to a, everything above to b, and the
// middle to the even one. Rounding is monotone, so these three points decide it everywhere.
TEST(Elements, values_between_neighbours_round_to_nearest_even) {
  for (const Format& format : kFormats)
    for (uint16_t a = 0; a < format.infinity; a++)
      for (uint16_t sign : {0x0000, 0x8000}) {
        const auto b = static_cast<uint16_t>(a + 1);
        // Past the largest finite value, the neighbour is where the next one would be.
        const double low = load(format, a);
        const double step = low - (a ? load(format, static_cast<uint16_t>(a - 1)) : 0);
        const double high = b == format.infinity ? low + step : double(load(format, b));
        const double middle = (low + high) / 2;
        const float at = static_cast<float>(sign ? -middle : middle);
        ASSERT_EQ(std::abs(double(at)), middle) << "the middle is a float";
        const uint16_t even = a % 2 == 0 ? a : b;
        ASSERT_EQ(rounded(format, at), even | sign);
        ASSERT_EQ(rounded(format, std::nextafter(at, 0.0f)), a | sign);
        ASSERT_EQ(rounded(format, std::nextafter(at, sign ? -kInf : kInf)), b | sign);
      }
}

TEST(Elements, overflow_goes_to_infinity) {
  for (const Format& format : kFormats) {
    EXPECT_EQ(rounded(format, kInf), format.infinity);
    EXPECT_EQ(rounded(format, -kInf), format.infinity | 0x8000);
    EXPECT_EQ(rounded(format, std::numeric_limits<float>::max()), format.infinity);
    EXPECT_EQ(rounded(format, std::numeric_limits<float>::denorm_min()), 0);
  }
}

TEST(Elements, a_row_is_its_elements) {
  const std::vector<uint16_t> bits = {0xffff, 0x3c00, 0xc000, 0x3555, 0xffff};
  std::vector<double> row(3);
  load_elements(bits.data(), DType::kFloat16, 1, row);
  EXPECT_EQ(row, (std::vector<double>{1, -2, 0.333251953125}));
  const std::vector<float> floats = {9, 0.1f, -3};
  load_elements(floats.data(), DType::kFloat32, 0, row);
  EXPECT_EQ(row, (std::vector<double>{9, double(0.1f), -3}));
}

TEST(Elements, types_that_are_no_floats_here_are_an_internal_error) {
  const int32_t word = 0;
  std::vector<double> row(1);
  EXPECT_THROW(load_element(&word, DType::kInt32, 0), Error);
  EXPECT_THROW(load_elements(&word, DType::kFloat8E4M3, 0, row), Error);
}

}  // namespace
}  // namespace rapt
