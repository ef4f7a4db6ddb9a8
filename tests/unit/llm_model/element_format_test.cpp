#include "llm/model/element_format.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "unit/llm_model/file_writing.hpp"

namespace llm {
namespace {

using test::append;

// fp16 bit patterns by the definition of the format.
constexpr uint16_t kOne = 0x3c00, kMinusTwo = 0xc000, kHalf = 0x3800, kThird = 0x3555;

std::vector<float> values_of(ElementFormat format, const std::string& stored, size_t count) {
  std::vector<float> values(count, std::numeric_limits<float>::quiet_NaN());
  to_float(format, {reinterpret_cast<const std::byte*>(stored.data()), stored.size()}, values);
  return values;
}

TEST(ElementFormat, float32_is_copied_bit_for_bit) {
  const std::vector<float> numbers = {1.5f, -0.0f, 1e-40f, 3e38f};
  EXPECT_EQ(values_of(ElementFormat::kFloat32, test::bytes_of(numbers), 4), numbers);
}

TEST(ElementFormat, every_finite_half_has_the_value_of_its_definition) {
  std::vector<uint16_t> halves;
  std::vector<float> wanted;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (exponent == 31) continue;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    halves.push_back(static_cast<uint16_t>(bits));
    wanted.push_back(static_cast<float>(bits & 0x8000 ? -magnitude : magnitude));
  }
  EXPECT_EQ(values_of(ElementFormat::kFloat16, test::bytes_of(halves), halves.size()), wanted);
}

TEST(ElementFormat, half_infinities_and_nans_stay_what_they_are) {
  const auto values = values_of(ElementFormat::kFloat16,
                                test::bytes_of(std::vector<uint16_t>{0x7c00, 0xfc00, 0x7e01}), 3);
  EXPECT_EQ(values[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[1], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(values[2]));
}

TEST(ElementFormat, bfloat16_is_the_upper_half_of_a_float) {
  // 0x3fc0 = 1.5, 0xc2f7 = -123.5, 0x0001 = 2^-133
  const auto values = values_of(ElementFormat::kBFloat16,
                                test::bytes_of(std::vector<uint16_t>{0x3fc0, 0xc2f7, 0x0001}), 3);
  EXPECT_EQ(values, (std::vector<float>{1.5f, -123.5f, std::ldexp(1.0f, -133)}));
}

TEST(ElementFormat, q8_0_is_scale_times_signed_byte) {
  std::string stored;
  std::vector<float> wanted;
  for (const auto& [scale, value] : {std::pair{kHalf, 0.5f}, std::pair{kMinusTwo, -2.0f}}) {
    append(stored, scale);
    for (int i = 0; i < 32; ++i) {
      const int q = i == 0 ? -128 : i == 1 ? 127 : 7 * i - 100;
      stored += static_cast<char>(q);
      wanted.push_back(value * static_cast<float>(q));
    }
  }
  EXPECT_EQ(values_of(ElementFormat::kQ8_0, stored, 64), wanted);
}

TEST(ElementFormat, q4_0_keeps_the_first_16_elements_in_the_low_nibbles) {
  std::string stored;
  append(stored, kHalf);
  stored += std::string("\x10\x32\x54\x76\x98\xba\xdc\xfe", 8);
  stored += std::string("\x0f\xf0\x88\x80\x08\x78\x87\xff", 8);
  const std::vector<float> wanted = {// low nibbles 0 2 4 6 8 10 12 14 | 15 0 8 0 8 8 7 15
                                     -4, -3, -2, -1, 0, 1, 2, 3, 3.5, -4, 0, -4, 0, 0, -.5, 3.5,
                                     // high nibbles 1 3 5 7 9 11 13 15 | 0 15 8 8 0 7 8 15
                                     -3.5, -2.5, -1.5, -.5, .5, 1.5, 2.5, 3.5, -4, 3.5, 0, 0, -4,
                                     -.5, 0, 3.5};
  EXPECT_EQ(values_of(ElementFormat::kQ4_0, stored, 32), wanted);
}

TEST(ElementFormat, q4_1_adds_its_minimum) {
  std::string stored;
  append(stored, kOne);
  append(stored, kMinusTwo);
  for (int i = 0; i < 16; ++i) stored += static_cast<char>(i | (15 - i) << 4);
  std::vector<float> wanted;
  for (int i = 0; i < 16; ++i) wanted.push_back(static_cast<float>(i - 2));
  for (int i = 0; i < 16; ++i) wanted.push_back(static_cast<float>(15 - i - 2));
  EXPECT_EQ(values_of(ElementFormat::kQ4_1, stored, 32), wanted);
}

TEST(ElementFormat, q4_1_rounds_as_fp32_does) {
  std::string stored;
  append(stored, kThird);
  append(stored, kThird);
  stored += std::string(16, '\x73');
  const float third = 1365.0f / 4096.0f;  // the half nearest 1/3
  const auto values = values_of(ElementFormat::kQ4_1, stored, 32);
  EXPECT_EQ(values[0], third * 3 + third);
  EXPECT_EQ(values[31], third * 7 + third);
}

// Packs 256 chosen 6-bit numbers: element e of half h, row r, place i is e = 128 h + 32 r + i.
TEST(ElementFormat, q6_k_puts_six_bits_together) {
  std::string low(128, '\0'), high(64, '\0'), scales;
  std::vector<int> numbers, scale_of(16);
  for (int s = 0; s < 16; ++s) {
    scale_of[s] = s == 3 ? -128 : 5 * s - 30;
    scales += static_cast<char>(scale_of[s]);
  }
  for (int e = 0; e < 256; ++e) {
    const int number = (e * 37 + e / 64) % 64, h = e / 128, r = e / 32 % 4, i = e % 32;
    numbers.push_back(number);
    low[64 * h + 32 * (r % 2) + i] |= static_cast<char>((number & 15) << (r < 2 ? 0 : 4));
    high[32 * h + i] |= static_cast<char>((number >> 4) << (2 * r));
  }
  std::string stored = low + high + scales;
  append(stored, kHalf);
  ASSERT_EQ(std::ssize(stored), info_of(ElementFormat::kQ6_K).block_bytes);
  const auto values = values_of(ElementFormat::kQ6_K, stored, 256);
  for (int e = 0; e < 256; ++e)
    EXPECT_EQ(values[e], 0.5f * static_cast<float>(scale_of[e / 16] * (numbers[e] - 32))) << e;
}

// A block written out by hand, byte for byte: all low bits 1, all high bits 2, so q = 33
// everywhere.
TEST(ElementFormat, q6_k_scales_sixteen_elements_each) {
  std::string stored(128, '\x11');
  stored += std::string(64, '\xaa');
  for (int s = 0; s < 16; ++s) stored += static_cast<char>(s + 1);
  append(stored, kOne);
  const auto values = values_of(ElementFormat::kQ6_K, stored, 256);
  for (int e = 0; e < 256; ++e) EXPECT_EQ(values[e], static_cast<float>(e / 16 + 1)) << e;
}

}  // namespace
}  // namespace llm
