#include "llm/model/json_file.hpp"

#include <gtest/gtest.h>

#include "unit/llm_model/file_writing.hpp"

namespace llm {
namespace {

using rapt::ErrorCode;
using test::expect_error;

TEST(JsonFile, members_are_found_missing_or_of_the_wrong_type) {
  const auto object = parse_json(R"({"a": 3, "b": null, "c": 1.5, "d": true, "e": "x"})", "f");
  EXPECT_EQ(json_integer(object, "a", "f"), 3);
  EXPECT_EQ(json_integer(object, "b", "f"), std::nullopt);
  EXPECT_EQ(json_integer(object, "z", "f"), std::nullopt);
  EXPECT_EQ(json_real(object, "c", "f"), 1.5);
  EXPECT_EQ(json_boolean(object, "d", "f"), true);
  EXPECT_EQ(json_text(object, "e", "f"), "x");
  expect_error(ErrorCode::kIo, {"f: c must be an integer"},
               [&] { json_integer(object, "c", "f"); });
  expect_error(ErrorCode::kIo, {"f: e must be a number"}, [&] { json_real(object, "e", "f"); });
  expect_error(ErrorCode::kIo, {"f: a must be true"}, [&] { json_boolean(object, "a", "f"); });
  expect_error(ErrorCode::kIo, {"f: d must be a string"}, [&] { json_text(object, "d", "f"); });
}

TEST(JsonFile, refuses_what_is_no_json_or_says_a_thing_twice) {
  expect_error(ErrorCode::kIo, {"f: ", "not valid JSON"}, [] { parse_json("{\"a\": ", "f"); });
  expect_error(ErrorCode::kIo, {"f: ", "not valid JSON"}, [] { parse_json("{\"\xff\": 1}", "f"); });
  expect_error(ErrorCode::kIo, {"\"a\" appears twice"},
               [] { parse_json(R"({"a": 1, "b": {"a": 1}, "a": 2})", "f"); });
  expect_error(ErrorCode::kIo, {"nests deeper"}, [] { parse_json(std::string(100000, '['), "f"); });
}

}  // namespace
}  // namespace llm
