#include "support/element.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace rapt::test {
namespace {

struct Format {
  int significand_bits;  // the hidden one included
  int min_exponent;      // of the smallest normal number, as in 2^min_exponent
  int max_exponent;      // of the largest finite number
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return {24, -126, 127};
    case DType::kFloat16:
      return {11, -14, 15};
    case DType::kBFloat16:
      return {8, -126, 127};
    default:
      throw std::invalid_argument("no element of tests");
  }
}

// Of an exponent from -1022 to 1023, where a product with it is ldexp in a fraction of the time.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

}  // namespace

double unit_roundoff(DType dtype) {
  return std::ldexp(1.0, -format_of(dtype).significand_bits);
}

double round_to(DType dtype, double value) {
  if (dtype == DType::kFloat32) return static_cast<float>(value);
  if (value == 0 || !std::isfinite(value)) return value;
  const Format format = format_of(dtype);
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  const int ulp = exponent - (format.significand_bits - 1);
  const double rounded = std::nearbyint(value * power_of_two(-ulp)) * power_of_two(ulp);
  if (std::abs(rounded) < power_of_two(format.max_exponent + 1)) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), value);
}

void store(DType dtype, void* at, double value) {
  const float rounded = static_cast<float>(round_to(dtype, value));
  if (dtype == DType::kFloat32) {
    std::memcpy(at, &rounded, sizeof rounded);
    return;
  }
  uint16_t bits;
  if (dtype == DType::kBFloat16) {
    bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded) >> 16);  // exact after rounding
  } else {
    const uint16_t sign = std::signbit(rounded) ? 0x8000 : 0;
    const double magnitude = std::abs(static_cast<double>(rounded));
    if (std::isnan(rounded)) {
      bits = 0x7e00;
    } else if (std::isinf(rounded)) {
      bits = sign | 0x7c00;
    } else if (magnitude < std::ldexp(1.0, -14)) {
      bits = sign | static_cast<uint16_t>(std::ldexp(magnitude, 24));
    } else {
      const int exponent = std::ilogb(magnitude);
      const auto significand = static_cast<uint16_t>(std::ldexp(magnitude, 10 - exponent));
      bits = static_cast<uint16_t>(sign | ((exponent + 15) << 10) | (significand & 0x3ff));
    }
  }
  std::memcpy(at, &bits, sizeof bits);
}

float load(DType dtype, const void* at) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  if (dtype == DType::kBFloat16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  float magnitude;
  if (exponent == 0x1f)
    magnitude =
        fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  else
    magnitude = std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

}  // namespace rapt::test
