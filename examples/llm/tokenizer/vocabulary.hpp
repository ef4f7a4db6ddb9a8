// The tokens of a model: their bytes, kinds and ids.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace llm {

enum class TokenKind : uint8_t {
  kNormal,
  kByte,         // stands for one byte that no other token covers
  kUserDefined,  // found in text before anything else
  kControl,      // begin, end, chat roles: no text; found in text only when asked for
  kUnknown,
};

struct Token {
  std::string spelling;  // how it is written in text; for kByte "<0x41>"
  std::string bytes;     // what it decodes to; empty for kControl and kUnknown
  TokenKind kind = TokenKind::kNormal;
  float score = 0;  // SentencePiece: a merge into this token is better the higher it is
};

class Vocabulary {
 public:
  // `name` (the file) is for messages. Of two tokens with the same bytes the first is found.
  Vocabulary(std::vector<Token> tokens, const std::string& name);
  Vocabulary(Vocabulary&&) = default;  // not copied: by_bytes_ views into tokens_

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  const Token& token(int32_t id) const;  // throws kInvalidArgument outside [0, size())
  // The normal token with these bytes.
  std::optional<int32_t> find(std::string_view bytes) const;
  // The token of kind kByte for `byte`; else the normal one-byte token; else unknown_id; throws
  // kInvalidArgument if there is none of them.
  int32_t byte_token(uint8_t byte) const;

  // The special token that starts first in `text` (of those at one place, the longest): its place
  // and id. Control tokens only if `with_control`.
  struct Special {
    size_t position;
    int32_t id;
  };
  std::optional<Special> find_special(std::string_view text, bool with_control) const;

  int32_t bos_id = -1;      // -1 = none
  int32_t unknown_id = -1;  // -1 = none
  std::vector<int32_t> eos_ids;
  bool adds_bos = false;
  bool adds_space_prefix = false;

 private:
  std::vector<Token> tokens_;
  // The keys view into tokens_, whose strings stay where they are when the vector is moved.
  std::unordered_map<std::string_view, int32_t> by_bytes_;
  std::array<int32_t, 256> byte_tokens_{};          // -1 = none
  std::array<std::vector<int32_t>, 256> specials_;  // by first byte, longest first
};

}  // namespace llm
