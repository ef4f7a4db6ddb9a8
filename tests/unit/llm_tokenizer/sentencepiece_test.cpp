#include <gtest/gtest.h>

#include "llm/tokenizer/loaders.hpp"
#include "llm/tokenizer/sentencepiece.hpp"
#include "unit/llm_model/file_writing.hpp"

namespace llm {
namespace {

using Ids = std::vector<int32_t>;
using rapt::ErrorCode;

// Ids: 0 unknown, 1 BOS, 2 EOS, 3-258 the bytes, then the pieces with falling scores.
std::unique_ptr<Tokenizer> make(const std::vector<std::string>& pieces, bool space_prefix = true,
                                const std::vector<std::string>& user_defined = {}) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    types.push_back(6);
  }
  std::vector<float> scores(tokens.size(), 0);
  for (const std::string& piece : pieces) {
    scores.push_back(-static_cast<float>(scores.size()));
    tokens.push_back(piece);
    types.push_back(1);
  }
  for (const std::string& piece : user_defined) {
    scores.push_back(0);
    tokens.push_back(piece);
    types.push_back(4);
  }
  const std::string name = "x.gguf",
                    bytes = test::GgufWriter()
                                .text("tokenizer.ggml.model", "llama")
                                .boolean("tokenizer.ggml.add_space_prefix", space_prefix)
                                .texts("tokenizer.ggml.tokens", tokens)
                                .reals("tokenizer.ggml.scores", scores)
                                .integers("tokenizer.ggml.token_type", types)
                                .finish();
  return load_gguf_tokenizer(test::view(bytes, name));
}

constexpr int32_t kByte0 = 3, kFirst = 259;
const std::string kSpace = "\xe2\x96\x81";

TEST(SentencePiece, merges_the_best_score_first_not_the_leftmost) {
  // bc outranks ab, so "abc" is a + bc although ab begins earlier.
  const auto tokenizer = make({"bc", "ab", "a", "b", "c"}, false);
  EXPECT_EQ(tokenizer->encode("abc", false), (Ids{kFirst + 2, kFirst}));
  EXPECT_EQ(tokenizer->encode("ab", false), (Ids{kFirst + 1}));
}

TEST(SentencePiece, equal_scores_merge_from_the_left) {
  const auto tokenizer = make({"aa", "a"}, false);
  EXPECT_EQ(tokenizer->encode("aaa", false), (Ids{kFirst, kFirst + 1}));
  EXPECT_EQ(tokenizer->encode("aaaaa", false), (Ids{kFirst, kFirst, kFirst + 1}));
}

TEST(SentencePiece, a_merge_needs_its_halves_to_merge_first) {
  // "abcd" is a piece, but no chain of pieces leads to it.
  const auto tokenizer = make({"abcd", "a", "b", "c", "d"}, false);
  EXPECT_EQ(tokenizer->encode("abcd", false),
            (Ids{kFirst + 1, kFirst + 2, kFirst + 3, kFirst + 4}));
}

TEST(SentencePiece, characters_without_a_piece_fall_back_to_bytes) {
  const auto tokenizer = make({"a"}, false);
  EXPECT_EQ(tokenizer->encode("é\xff"
                              "a",
                              false),
            (Ids{kByte0 + 0xc3, kByte0 + 0xa9, kByte0 + 0xff, kFirst}));
  EXPECT_EQ(tokenizer->decode(kByte0 + 0xc3), "\xc3");
}

TEST(SentencePiece, a_space_goes_before_the_text_unless_the_file_says_no) {
  const std::vector<std::string> pieces = {kSpace + "a", kSpace, "a"};
  const auto with = make(pieces), without = make(pieces, false);
  EXPECT_EQ(with->encode("a a", true), (Ids{1, kFirst, kFirst}));
  EXPECT_EQ(without->encode("a a", true), (Ids{1, kFirst + 2, kFirst}));
  EXPECT_EQ(decode_all(*with, {1, kFirst, kFirst}), "a a");
  EXPECT_EQ(decode_all(*without, {1, kFirst, kFirst}), " a a");
  EXPECT_EQ(with->encode("", true), Ids{1});
  EXPECT_EQ(with->encode("", false), Ids{});
}

TEST(SentencePiece, text_cannot_forge_control_tokens) {
  const auto tokenizer = make({"<", "s", ">", "</", "<s", "<s>"}, false);
  const Ids forged = tokenizer->encode("<s>", false);
  EXPECT_EQ(forged, Ids{kFirst + 5});  // the normal piece of that spelling
  EXPECT_EQ(tokenizer->encode("<s>", false, /*parse_special=*/true), Ids{1});
  const auto plain = make({"<", "s", ">"}, false);
  EXPECT_EQ(plain->encode("<s>", false), (Ids{kFirst, kFirst + 1, kFirst + 2}));
  EXPECT_EQ(plain->encode("<0x41>", false).size(), 6u);  // nor byte tokens
}

TEST(SentencePiece, user_defined_tokens_come_before_merging) {
  const auto tokenizer = make({"ab", "a", "b", "c"}, false, {"bc"});
  EXPECT_EQ(tokenizer->encode("abc", false), (Ids{kFirst + 1, kFirst + 4}));
  EXPECT_EQ(tokenizer->decode(kFirst + 4), "bc");
}

TEST(SentencePiece, long_texts_take_no_quadratic_time) {
  const auto tokenizer = make({"aaaaaaaa", "aaaa", "aa", "a"}, false);
  const Ids ids = tokenizer->encode(std::string(1 << 18, 'a'), false);
  EXPECT_EQ(ids, Ids(1 << 15, kFirst));
}

TEST(SentencePiece, spells_bytes_in_hexadecimal) {
  EXPECT_EQ(spelled_byte("<0x0A>"), 10);
  EXPECT_EQ(spelled_byte("<0xFF>"), 255);
  for (const char* other : {"<0xG0>", "<0x0>", "<0x000>", "0x0A", "<0x-1>", "<0x A>"})
    EXPECT_EQ(spelled_byte(other), std::nullopt) << other;
}

}  // namespace
}  // namespace llm
