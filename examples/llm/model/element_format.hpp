// How files store the elements of a weight, and their values in fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace llm {

// The quantised formats are GGUF's: blocks of elements that share fp16 scales.
enum class ElementFormat : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kQ8_0,  // 32 elements: fp16 d, int8 q[32];                         value = d * q
  kQ4_0,  // 32 elements: fp16 d, 4-bit q[32];                        value = d * (q - 8)
  kQ4_1,  // 32 elements: fp16 d, fp16 m, 4-bit q[32];                value = d * q + m
  kQ6_K,  // 256 elements: 6-bit q[256], int8 s[16], fp16 d;          value = d * s * (q - 32)
};

struct FormatInfo {
  const char* name;
  int64_t block_elems;  // a row holds whole blocks
  int64_t block_bytes;
};

const FormatInfo& info_of(ElementFormat format);

// Writes values.size() elements, a multiple of the format's block_elems; `stored` holds exactly
// their blocks and need not be aligned.
void to_float(ElementFormat format, std::span<const std::byte> stored, std::span<float> values);

}  // namespace llm
