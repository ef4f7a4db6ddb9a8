// Element types of tensors and storage formats of KV caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rapt/export.hpp"

namespace rapt {

enum class DType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,  // finite kind: largest value 448, no infinity
  kFloat8E5M2,  // largest value 57344
  kUInt8,
  kInt32,
  kInt64,
};

// Bytes of one element.
RAPT_API size_t size_of(DType dtype);
// "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "uint8", "int32", "int64".
RAPT_API const char* to_string(DType dtype);
// Accepts the names above and the short forms fp32, f32, fp16, f16, bf16, fp8_e4m3, fp8_e5m2, u8,
// i32, i64.
RAPT_API std::optional<DType> parse_dtype(std::string_view name);

// How a cache stores a token's key or value row. The first three store elements of that type; the
// others are quantised.
enum class KvFormat : uint8_t {
  kAuto,  // the query dtype
  kFloat32,
  kFloat16,
  kBFloat16,
  kFp8E4M3,
  kFp8E5M2,
  kInt8PerTokenHead,
  kFp8PerTokenHead,
  kInt4PerTokenHead,
  kNvfp4,
  kTurboQuantK8V4,
  kTurboQuant4BitNc,
  kTurboQuantK3V4Nc,
  kTurboQuant3BitNc,
};

// "auto", "float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head",
// "fp8_per_token_head", "int4_per_token_head", "nvfp4", "turboquant_k8v4", "turboquant_4bit_nc",
// "turboquant_k3v4_nc", "turboquant_3bit_nc".
RAPT_API const char* to_string(KvFormat format);
// Accepts the names above, the short forms fp32, fp16, bf16, and "fp8" for fp8_e4m3.
RAPT_API std::optional<KvFormat> parse_kv_format(std::string_view name);
// The element type of an unquantised format; nothing for kAuto and the quantised ones.
RAPT_API std::optional<DType> element_dtype(KvFormat format);
// The element type of a cache's rows where they hold one element per value: that of an unquantised
// format, or the FP8 type. Nothing for kAuto and for formats that pack values or keep scales in the
// row.
RAPT_API std::optional<DType> storage_dtype(KvFormat format);

}  // namespace rapt
