#include <gtest/gtest.h>

#include <random>

#include "llm/tokenizer/tokenizer.hpp"
#include "llm/tokenizer/utf8.hpp"

namespace llm {
namespace {

// A token for each byte, one for each pair of bytes that is asked for, and a control token.
class Bytes final : public Tokenizer {
 public:
  explicit Bytes(bool space_prefix = false) : Tokenizer(make(space_prefix)) {}

 private:
  static Vocabulary make(bool space_prefix) {
    std::vector<Token> tokens;
    for (int byte = 0; byte < 256; ++byte)
      tokens.push_back({"", std::string(1, static_cast<char>(byte)), TokenKind::kByte, 0});
    tokens.push_back({"<c>", "", TokenKind::kControl, 0});
    tokens.push_back({" a", " a", TokenKind::kNormal, 0});
    Vocabulary vocabulary(std::move(tokens), "f");
    vocabulary.adds_space_prefix = space_prefix;
    return vocabulary;
  }
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  }
};

constexpr int32_t kControl = 256, kSpaceA = 257;

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    if (step.state != Utf8State::kWhole) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

TEST(StreamDecoder, holds_a_character_back_until_it_is_whole) {
  const Bytes tokenizer;
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(0xf0), "");
  EXPECT_EQ(stream.push(0x9f), "");
  EXPECT_EQ(stream.push(0xa6), "");
  EXPECT_EQ(stream.push(kControl), "");
  EXPECT_EQ(stream.push(0x99), "🦙");
  EXPECT_EQ(stream.push('x'), "x");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, replaces_what_cannot_become_a_character) {
  const Bytes tokenizer;
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(0xff), "\ufffd");
  EXPECT_EQ(stream.push(0xe6), "");
  EXPECT_EQ(stream.push('a'), "\ufffda");
  EXPECT_EQ(stream.push(0xe6), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, drops_the_space_prefix_at_the_start_only) {
  const Bytes tokenizer(/*space_prefix=*/true);
  StreamDecoder whole(tokenizer);
  EXPECT_EQ(whole.push(kControl), "");
  EXPECT_EQ(whole.push(kSpaceA), "a");
  EXPECT_EQ(whole.push(kSpaceA), " a");
  StreamDecoder middle(tokenizer, /*at_start=*/false);
  EXPECT_EQ(middle.push(kSpaceA), " a");
}

TEST(StreamDecoder, gives_valid_utf8_for_any_bytes_and_valid_text_unchanged) {
  const Bytes tokenizer;
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    StreamDecoder stream(tokenizer);
    std::string pushed, given;
    for (int i = 0; i < 8; ++i) {
      // Mostly leads and tails, so that whole characters come about.
      const uint32_t choice = random() % 8;
      const int32_t byte = choice < 4   ? 0x80 + random() % 0x40
                           : choice < 7 ? 0xc0 + random() % 0x40
                                        : 'a';
      pushed += static_cast<char>(byte);
      const std::string piece = stream.push(byte);
      ASSERT_TRUE(is_utf8(piece));
      given += piece;
    }
    given += stream.finish();
    ASSERT_TRUE(is_utf8(given));
    if (is_utf8(pushed)) {
      ASSERT_EQ(given, pushed);
    } else {
      ASSERT_NE(given.find("\ufffd"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace llm
