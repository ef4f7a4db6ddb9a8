// Names and sizes of element types and cache formats.
#include "rapt/dtype.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "rapt/error.hpp"

namespace rapt {
namespace {

TEST(DType, every_name_parses_back) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(DType::kInt64); i++) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    EXPECT_GT(size_of(dtype), 0u);
    names.insert(to_string(dtype));
  }
  EXPECT_EQ(names.size(), 8u);
  EXPECT_EQ(parse_dtype("bf16"), DType::kBFloat16);
  EXPECT_EQ(parse_dtype("f32"), DType::kFloat32);
  EXPECT_EQ(parse_dtype("float64"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(DType, sizes_are_those_of_the_hardware) {
  EXPECT_EQ(size_of(DType::kFloat32), 4u);
  EXPECT_EQ(size_of(DType::kFloat16), 2u);
  EXPECT_EQ(size_of(DType::kBFloat16), 2u);
  EXPECT_EQ(size_of(DType::kFloat8E4M3), 1u);
  EXPECT_EQ(size_of(DType::kInt64), 8u);
}

TEST(KvFormat, every_name_parses_back) {
  for (int i = 0; i <= static_cast<int>(KvFormat::kTurboQuant3BitNc); i++) {
    const auto format = static_cast<KvFormat>(i);
    EXPECT_EQ(parse_kv_format(to_string(format)), format);
  }
  EXPECT_EQ(parse_kv_format("fp8"), KvFormat::kFp8E4M3);
  EXPECT_EQ(parse_kv_format("int3"), std::nullopt);
}

TEST(KvFormat, only_one_element_per_value_has_a_storage_type) {
  EXPECT_EQ(element_dtype(KvFormat::kBFloat16), DType::kBFloat16);
  EXPECT_EQ(element_dtype(KvFormat::kFp8E4M3), std::nullopt);
  EXPECT_EQ(storage_dtype(KvFormat::kFloat16), DType::kFloat16);
  EXPECT_EQ(storage_dtype(KvFormat::kFp8E4M3), DType::kFloat8E4M3);
  EXPECT_EQ(storage_dtype(KvFormat::kFp8E5M2), DType::kFloat8E5M2);
  EXPECT_EQ(storage_dtype(KvFormat::kNvfp4), std::nullopt);
  EXPECT_EQ(storage_dtype(KvFormat::kFp8PerTokenHead), std::nullopt);
  EXPECT_EQ(storage_dtype(KvFormat::kAuto), std::nullopt);
}

TEST(ErrorCode, every_code_has_a_name) {
  std::set<std::string> names;
  for (int i = 1; i <= static_cast<int>(ErrorCode::kInternal); i++)
    names.insert(to_string(static_cast<ErrorCode>(i)));
  EXPECT_EQ(names.size(), 7u);
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace rapt
