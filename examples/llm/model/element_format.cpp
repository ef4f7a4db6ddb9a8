#include "llm/model/element_format.hpp"

#include <bit>
#include <cstring>

namespace llm {
namespace {

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)  // the exponents' biases differ by 127 - 15
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float load_half(const std::byte* at) {
  return half_to_float(load<uint16_t>(at));
}

void halves_to_float(const std::byte* stored, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = load_half(stored + 2 * i);
}

void bfloats_to_float(const std::byte* stored, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = load<uint16_t>(stored + 2 * i);
    values[i] = std::bit_cast<float>(bits << 16);
  }
}

void q8_0_block(const std::byte* block, float* values) {
  const float d = load_half(block);
  for (int i = 0; i < 32; ++i) values[i] = d * static_cast<float>(load<int8_t>(block + 2 + i));
}

// Byte i of a 4-bit block holds element i in its low half and element i + 16 in its high half.
void q4_0_block(const std::byte* block, float* values) {
  const float d = load_half(block);
  for (int i = 0; i < 16; ++i) {
    const int pair = std::to_integer<int>(block[2 + i]);
    values[i] = d * static_cast<float>((pair & 15) - 8);
    values[i + 16] = d * static_cast<float>((pair >> 4) - 8);
  }
}

void q4_1_block(const std::byte* block, float* values) {
  const float d = load_half(block), m = load_half(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int pair = std::to_integer<int>(block[4 + i]);
    values[i] = d * static_cast<float>(pair & 15) + m;
    values[i + 16] = d * static_cast<float>(pair >> 4) + m;
  }
}

// 128 bytes with the low 4 bits, 64 with the high 2, 16 int8 scales of 16 elements each, fp16 d.
// Each half of 128 elements is four rows of 32: row r takes its low bits from byte i or i + 32 (r
// even or odd), low or high nibble (r < 2 or not), and its high bits from bits 2r of byte i.
void q6_k_block(const std::byte* block, float* values) {
  const float d = load_half(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = block + 64 * half;
    const std::byte* high = block + 128 + 32 * half;
    const std::byte* scales = block + 192 + 8 * half;
    for (int row = 0; row < 4; ++row) {
      for (int i = 0; i < 32; ++i) {
        const int nibble = std::to_integer<int>(low[i + 32 * (row & 1)]) >> (row < 2 ? 0 : 4) & 15;
        const int bits = std::to_integer<int>(high[i]) >> (2 * row) & 3;
        const float scale = d * static_cast<float>(load<int8_t>(scales + 2 * row + i / 16));
        values[128 * half + 32 * row + i] = scale * static_cast<float>((nibble | bits << 4) - 32);
      }
    }
  }
}

template <typename Block>
void blocks_to_float(ElementFormat format, const std::byte* stored, std::span<float> values,
                     const Block& block_to_float) {
  const FormatInfo& info = info_of(format);
  for (size_t i = 0; i < values.size(); i += info.block_elems, stored += info.block_bytes)
    block_to_float(stored, values.data() + i);
}

}  // namespace

const FormatInfo& info_of(ElementFormat format) {
  static constexpr FormatInfo kInfo[] = {{"F32", 1, 4},     {"F16", 1, 2},    {"BF16", 1, 2},
                                         {"Q8_0", 32, 34},  {"Q4_0", 32, 18}, {"Q4_1", 32, 20},
                                         {"Q6_K", 256, 210}};
  return kInfo[static_cast<size_t>(format)];
}

void to_float(ElementFormat format, std::span<const std::byte> stored, std::span<float> values) {
  switch (format) {
    case ElementFormat::kFloat32:
      if (!values.empty()) std::memcpy(values.data(), stored.data(), values.size_bytes());
      return;
    case ElementFormat::kFloat16:
      return halves_to_float(stored.data(), values);
    case ElementFormat::kBFloat16:
      return bfloats_to_float(stored.data(), values);
    case ElementFormat::kQ8_0:
      return blocks_to_float(format, stored.data(), values, q8_0_block);
    case ElementFormat::kQ4_0:
      return blocks_to_float(format, stored.data(), values, q4_0_block);
    case ElementFormat::kQ4_1:
      return blocks_to_float(format, stored.data(), values, q4_1_block);
    case ElementFormat::kQ6_K:
      return blocks_to_float(format, stored.data(), values, q6_k_block);
  }
}

}  // namespace llm
