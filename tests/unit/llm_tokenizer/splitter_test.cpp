#include "llm/tokenizer/splitter.hpp"

#include <gtest/gtest.h>

#include "unit/llm_model/file_writing.hpp"

namespace llm {
namespace {

using Pieces = std::vector<std::string_view>;

Pieces split(const char* rule, std::string_view text) {
  return Splitter(splitter_patterns(rule, "f"), "f").split(text);
}

TEST(Splitter, gpt2_cuts_contractions_words_digits_and_spaces) {
  EXPECT_EQ(split("gpt-2", "I'll pay 1250 euros!!  \n  Now"),
            (Pieces{"I", "'ll", " pay", " 1250", " euros", "!!", "  \n ", " Now"}));
  EXPECT_EQ(split("gpt-2", "  "), Pieces{"  "});
  EXPECT_EQ(split("gpt-2", "I'LL"), (Pieces{"I", "'", "LL"}));
}

TEST(Splitter, smollm_isolates_each_digit) {
  EXPECT_EQ(split("smollm", "in 2024 or ½"),
            (Pieces{"in", " ", "2", "0", "2", "4", " or", " ", "½"}));
}

TEST(Splitter, llama_bpe_takes_three_digits_and_keeps_line_ends) {
  EXPECT_EQ(split("llama-bpe", "We'Ve 12345 (x)\n\nok\n"),
            (Pieces{"We", "'Ve", " ", "123", "45", " (", "x", ")\n\n", "ok", "\n"}));
}

TEST(Splitter, default_isolates_punctuation_and_three_digits) {
  EXPECT_EQ(split("default", "a, 1234"), (Pieces{"a", ",", " ", "123", "4"}));
}

TEST(Splitter, letters_and_digits_are_unicodes) {
  const Pieces expected{"нещо", " на", " 東京", "٣٤", " é"};
  EXPECT_EQ(split("gpt-2", "нещо на 東京٣٤ é"), expected);
}

TEST(Splitter, loses_no_byte_that_is_not_utf8) {
  const std::string broken = "ab\xff\xfe c\xe6\x9d";
  for (const char* rule : {"gpt-2", "smollm", "llama-bpe", "default"}) {
    std::string joined;
    for (const std::string_view piece : split(rule, broken)) {
      EXPECT_FALSE(piece.empty());
      joined += piece;
    }
    EXPECT_EQ(joined, broken) << rule;
  }
}

TEST(Splitter, long_runs_take_linear_time) {
  const std::string spaces(200000, ' ');
  EXPECT_EQ(split("llama-bpe", spaces + "x").size(), 2u);
  EXPECT_EQ(split("gpt-2", spaces).size(), 1u);
}

TEST(Splitter, names_unknown_rules_and_broken_patterns) {
  test::expect_error(rapt::ErrorCode::kInvalidArgument, {"f: ", "\"qwen9\"", "llama-bpe", "smollm"},
                     [] { splitter_patterns("qwen9", "f"); });
  test::expect_error(rapt::ErrorCode::kInvalidArgument,
                     {"f: ", "pattern a(b does not compile at byte 3: missing closing"},
                     [] { Splitter({"a(b"}, "f"); });
  // A long one is cut, between characters.
  std::string pattern = "(";
  for (int i = 0; i < 5000; i++) pattern += "\u00e9";
  try {
    Splitter({pattern}, "f");
    ADD_FAILURE() << "compiles";
  } catch (const rapt::Error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("f: pre-tokenizer pattern " + pattern.substr(0, 199) +
                                 "... does not compile at byte "))
        << text;
    EXPECT_LT(text.size(), 400u);
  }
}

// A pattern that may match nothing must not stop the walk.
TEST(Splitter, empty_matches_advance) {
  EXPECT_EQ(Splitter({"x*"}, "f").split("axxb"), (Pieces{"a", "xx", "b"}));
}

}  // namespace
}  // namespace llm
