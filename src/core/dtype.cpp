#include "rapt/dtype.hpp"

#include <array>
#include <utility>

namespace rapt {
namespace {

using namespace std::string_view_literals;

constexpr std::array kDTypes = {
    std::pair{"float32"sv, DType::kFloat32},
    std::pair{"float16"sv, DType::kFloat16},
    std::pair{"bfloat16"sv, DType::kBFloat16},
    std::pair{"float8_e4m3"sv, DType::kFloat8E4M3},
    std::pair{"float8_e5m2"sv, DType::kFloat8E5M2},
    std::pair{"uint8"sv, DType::kUInt8},
    std::pair{"int32"sv, DType::kInt32},
    std::pair{"int64"sv, DType::kInt64},
    // Short forms; to_string() takes the first name of a type.
    std::pair{"fp32"sv, DType::kFloat32},
    std::pair{"f32"sv, DType::kFloat32},
    std::pair{"fp16"sv, DType::kFloat16},
    std::pair{"f16"sv, DType::kFloat16},
    std::pair{"bf16"sv, DType::kBFloat16},
    std::pair{"fp8_e4m3"sv, DType::kFloat8E4M3},
    std::pair{"fp8_e5m2"sv, DType::kFloat8E5M2},
    std::pair{"u8"sv, DType::kUInt8},
    std::pair{"i32"sv, DType::kInt32},
    std::pair{"i64"sv, DType::kInt64},
};

constexpr std::array kKvFormats = {
    std::pair{"auto"sv, KvFormat::kAuto},
    std::pair{"float32"sv, KvFormat::kFloat32},
    std::pair{"float16"sv, KvFormat::kFloat16},
    std::pair{"bfloat16"sv, KvFormat::kBFloat16},
    std::pair{"fp8_e4m3"sv, KvFormat::kFp8E4M3},
    std::pair{"fp8_e5m2"sv, KvFormat::kFp8E5M2},
    std::pair{"int8_per_token_head"sv, KvFormat::kInt8PerTokenHead},
    std::pair{"fp8_per_token_head"sv, KvFormat::kFp8PerTokenHead},
    std::pair{"int4_per_token_head"sv, KvFormat::kInt4PerTokenHead},
    std::pair{"nvfp4"sv, KvFormat::kNvfp4},
    std::pair{"turboquant_k8v4"sv, KvFormat::kTurboQuantK8V4},
    std::pair{"turboquant_4bit_nc"sv, KvFormat::kTurboQuant4BitNc},
    std::pair{"turboquant_k3v4_nc"sv, KvFormat::kTurboQuantK3V4Nc},
    std::pair{"turboquant_3bit_nc"sv, KvFormat::kTurboQuant3BitNc},
    std::pair{"fp32"sv, KvFormat::kFloat32},
    std::pair{"fp16"sv, KvFormat::kFloat16},
    std::pair{"bf16"sv, KvFormat::kBFloat16},
    std::pair{"fp8"sv, KvFormat::kFp8E4M3},
};

// All names are string literals, so data() ends in a zero.
template <typename Table, typename Value>
const char* name_of(const Table& table, Value value) {
  for (const auto& [name, entry] : table)
    if (entry == value) return name.data();
  return "unknown";
}

template <typename Value, typename Table>
std::optional<Value> value_of(const Table& table, std::string_view name) {
  for (const auto& [entry, value] : table)
    if (entry == name) return value;
  return std::nullopt;
}

}  // namespace

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
    case DType::kUInt8:
      return 1;
    case DType::kInt64:
      return 8;
  }
  return 0;
}

const char* to_string(DType dtype) {
  return name_of(kDTypes, dtype);
}
std::optional<DType> parse_dtype(std::string_view name) {
  return value_of<DType>(kDTypes, name);
}

const char* to_string(KvFormat format) {
  return name_of(kKvFormats, format);
}
std::optional<KvFormat> parse_kv_format(std::string_view name) {
  return value_of<KvFormat>(kKvFormats, name);
}

std::optional<DType> element_dtype(KvFormat format) {
  switch (format) {
    case KvFormat::kFloat32:
      return DType::kFloat32;
    case KvFormat::kFloat16:
      return DType::kFloat16;
    case KvFormat::kBFloat16:
      return DType::kBFloat16;
    default:
      return std::nullopt;
  }
}

std::optional<DType> storage_dtype(KvFormat format) {
  if (format == KvFormat::kFp8E4M3) return DType::kFloat8E4M3;
  if (format == KvFormat::kFp8E5M2) return DType::kFloat8E5M2;
  return element_dtype(format);
}

}  // namespace rapt
