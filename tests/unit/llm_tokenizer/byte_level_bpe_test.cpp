#include "llm/tokenizer/byte_level_bpe.hpp"

#include <gtest/gtest.h>

#include "unit/llm_model/file_writing.hpp"

namespace llm {
namespace {

using Ids = std::vector<int32_t>;
using Rules = std::vector<ByteLevelBpeTokenizer::MergeRule>;
using rapt::ErrorCode;
using test::expect_error;

// Ids 0-255 are the bytes, then the pieces.
std::vector<Token> bytes_and(const std::vector<std::string>& pieces) {
  std::vector<Token> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    tokens.push_back({one, one, TokenKind::kNormal, 0});
  }
  for (const std::string& piece : pieces) tokens.push_back({piece, piece, TokenKind::kNormal, 0});
  return tokens;
}

ByteLevelBpeTokenizer make(const std::vector<std::string>& pieces, const Rules& rules,
                           bool whole_words_first = false) {
  return {Vocabulary(bytes_and(pieces), "f"), rules, Splitter(splitter_patterns("gpt-2", "f"), "f"),
          whole_words_first, "f"};
}

TEST(ByteLevelBpe, the_earliest_rule_merges_first) {
  const auto tokenizer = make({"bc", "ab"}, {{"b", "c", 0}, {"a", "b", 1}});
  EXPECT_EQ(tokenizer.encode("abc", false), (Ids{'a', 256}));
  EXPECT_EQ(tokenizer.encode("abab", false), (Ids{257, 257}));
}

TEST(ByteLevelBpe, only_rules_merge_not_tokens) {
  // "abc" is a token, but its rule says ab + c and there is no rule that makes ab.
  const auto tokenizer = make({"ab", "abc"}, {{"ab", "c", 0}});
  EXPECT_EQ(tokenizer.encode("abc", false), (Ids{'a', 'b', 'c'}));
  EXPECT_EQ(make({"ab", "abc"}, {{"ab", "c", 0}}, /*whole_words_first=*/true).encode("abc", false),
            Ids{257});
}

TEST(ByteLevelBpe, nothing_merges_across_words) {
  const auto tokenizer = make({"ab", "a ", " b"}, {{"a", " ", 0}, {" ", "b", 1}, {"a", "b", 2}});
  EXPECT_EQ(tokenizer.encode("a b", false), (Ids{'a', 258}));
}

TEST(ByteLevelBpe, any_bytes_round_trip) {
  const auto tokenizer = make({"ab"}, {{"a", "b", 0}});
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  all += "ab\xf0\x9f\xa6\x99";
  EXPECT_EQ(decode_all(tokenizer, tokenizer.encode(all, false)), all);
}

TEST(ByteLevelBpe, rules_of_missing_pieces_are_an_error) {
  expect_error(ErrorCode::kIo, {"f: merge 3", "needs the token \"ab\", which is missing"}, [] {
    make({}, {{"a", "b", 3}});
  });
  expect_error(ErrorCode::kIo, {"needs the token \"xy\""}, [] { make({}, {{"xy", "b", 0}}); });
}

TEST(ByteLevelBpe, a_byte_without_token_is_unknown_or_an_error) {
  const auto make_without = [](int32_t unknown_id) {
    std::vector<Token> tokens = {{"<unk>", "", TokenKind::kUnknown, 0},
                                 {"a", "a", TokenKind::kNormal, 0}};
    Vocabulary vocabulary(std::move(tokens), "f");
    vocabulary.unknown_id = unknown_id;
    return ByteLevelBpeTokenizer(std::move(vocabulary), {},
                                 Splitter(splitter_patterns("gpt-2", "f"), "f"), false, "f");
  };
  EXPECT_EQ(make_without(0).encode("ab", false), (Ids{1, 0}));
  expect_error(ErrorCode::kInvalidArgument, {"no token stands for the byte 98"},
               [&] { make_without(-1).encode("ab", false); });
}

TEST(ByteLevelBpe, bos_must_exist_to_be_added) {
  expect_error(ErrorCode::kInvalidArgument, {"no BOS token"},
               [] { make({}, {}).encode("a", true); });
}

// The alphabet's definition: printable characters spell themselves, the 68 others U+0100 and up.
TEST(ByteLevelBpe, spellings_are_gpt2s_alphabet) {
  EXPECT_EQ(spelled_bytes("\u0120Hello\u010a"), " Hello\n");
  EXPECT_EQ(spelled_bytes("\u0100\u0121\u0122\u0142\u0143"), std::string("\0\x7f\x80\xa0\xad", 5));
  EXPECT_EQ(spelled_bytes("é"), "\xe9");       // U+00E9 spells the byte
  EXPECT_EQ(spelled_bytes("東"), "東");        // spells no byte: stays
  EXPECT_EQ(spelled_bytes(" \xff"), " \xff");  // neither do a real space and broken bytes
}

}  // namespace
}  // namespace llm
