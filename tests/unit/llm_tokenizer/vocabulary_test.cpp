#include "llm/tokenizer/vocabulary.hpp"

#include <gtest/gtest.h>

#include "llm/tokenizer/utf8.hpp"
#include "unit/llm_model/file_writing.hpp"

namespace llm {
namespace {

using rapt::ErrorCode;
using test::expect_error;

TEST(Vocabulary, special_tokens_are_found_first_and_longest) {
  const Vocabulary vocabulary({{"<a>", "", TokenKind::kControl, 0},
                               {"<a><b>", "", TokenKind::kControl, 0},
                               {"..", "..", TokenKind::kUserDefined, 0},
                               {"<a", "<a", TokenKind::kNormal, 0}},
                              "f");
  const auto found = vocabulary.find_special("x<a><b>..", true);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->position, 1u);
  EXPECT_EQ(found->id, 1);
  EXPECT_EQ(vocabulary.find_special("x<a><b>..", false)->position, 7u);
  EXPECT_FALSE(vocabulary.find_special("x<a", true).has_value());
  EXPECT_EQ(vocabulary.find("<a"), 3);
  EXPECT_EQ(vocabulary.find("<a>"), std::nullopt);
}

TEST(Vocabulary, of_equal_tokens_the_first_is_found) {
  const Vocabulary vocabulary(
      {{"a", "a", TokenKind::kNormal, 0}, {"a", "a", TokenKind::kNormal, 0}}, "f");
  EXPECT_EQ(vocabulary.find("a"), 0);
}

TEST(Vocabulary, ids_outside_are_an_error) {
  const Vocabulary vocabulary({{"a", "a", TokenKind::kNormal, 0}}, "f");
  EXPECT_EQ(vocabulary.token(0).bytes, "a");
  for (const int32_t id : {-1, 1, INT32_MAX, INT32_MIN})
    expect_error(ErrorCode::kInvalidArgument, {"token id is", "[0, 1)"},
                 [&] { static_cast<void>(vocabulary.token(id)); });
  expect_error(ErrorCode::kIo, {"f: the tokenizer has no tokens"}, [] { Vocabulary({}, "f"); });
}

TEST(Utf8, every_code_point_is_one_whole_step) {
  for (uint32_t point = 0; point <= 0x10ffff; point += point < 0x11000 ? 1 : 97) {
    if (point >= 0xd800 && point < 0xe000) continue;
    std::string text;
    append_utf8(point, text);
    const Utf8Step step = next_utf8(text + "\x80");
    ASSERT_EQ(step.state, Utf8State::kWhole) << point;
    ASSERT_EQ(step.length, text.size());
    ASSERT_EQ(step.codepoint, point);
    for (size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_EQ(next_utf8(text.substr(0, cut)).state, Utf8State::kPartial) << point;
  }
}

TEST(Utf8, forms_that_are_no_character_are_invalid) {
  for (const char* text :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5", "\xff", "\xc3(", "\xe6\x9d("})
    EXPECT_EQ(next_utf8(text).state, Utf8State::kInvalid) << text;
}

}  // namespace
}  // namespace llm
