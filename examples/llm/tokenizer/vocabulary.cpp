#include "llm/tokenizer/vocabulary.hpp"

#include <algorithm>
#include <limits>

#include "llm/model/failure.hpp"

namespace llm {

Vocabulary::Vocabulary(std::vector<Token> tokens, const std::string& name)
    : tokens_(std::move(tokens)) {
  check_io(!tokens_.empty(), name, ": the tokenizer has no tokens");
  check_io(tokens_.size() <= std::numeric_limits<int32_t>::max(), name, ": the tokenizer has ",
           tokens_.size(), " tokens, at most 2^31 - 1 have an id");
  byte_tokens_.fill(-1);
  by_bytes_.reserve(tokens_.size());
  for (int32_t id = 0; id < size(); ++id) {
    const Token& token = tokens_[id];
    const bool special = token.kind == TokenKind::kControl || token.kind == TokenKind::kUserDefined;
    if (token.kind == TokenKind::kByte) {
      check_io(token.bytes.size() == 1, name, ": token ", id, " (", token.spelling,
               ") is of the byte kind but stands for ", token.bytes.size(), " bytes");
      byte_tokens_[static_cast<uint8_t>(token.bytes[0])] = id;
    } else if (token.kind == TokenKind::kNormal) {
      if (!token.bytes.empty()) by_bytes_.try_emplace(token.bytes, id);
    } else if (special && !token.spelling.empty()) {
      specials_[static_cast<uint8_t>(token.spelling[0])].push_back(id);
    }
  }
  for (auto& same_first_byte : specials_) {
    std::stable_sort(same_first_byte.begin(), same_first_byte.end(), [&](int32_t a, int32_t b) {
      return tokens_[a].spelling.size() > tokens_[b].spelling.size();
    });
  }
}

const Token& Vocabulary::token(int32_t id) const {
  if (id < 0 || id >= size())
    fail(rapt::ErrorCode::kInvalidArgument, "token id is ", id, ", must be in [0, ", size(), ")");
  return tokens_[id];
}

std::optional<int32_t> Vocabulary::find(std::string_view bytes) const {
  const auto found = by_bytes_.find(bytes);
  if (found == by_bytes_.end()) return std::nullopt;
  return found->second;
}

int32_t Vocabulary::byte_token(uint8_t byte) const {
  if (byte_tokens_[byte] >= 0) return byte_tokens_[byte];
  const char one = static_cast<char>(byte);
  if (const auto id = find({&one, 1})) return *id;
  if (unknown_id >= 0) return unknown_id;
  fail(rapt::ErrorCode::kInvalidArgument, "text: no token stands for the byte ", int{byte},
       ", and the vocabulary has no unknown token to put in its place");
}

std::optional<Vocabulary::Special> Vocabulary::find_special(std::string_view text,
                                                            bool with_control) const {
  for (size_t position = 0; position < text.size(); ++position) {
    for (const int32_t id : specials_[static_cast<uint8_t>(text[position])]) {
      const Token& token = tokens_[id];
      if (token.kind == TokenKind::kControl && !with_control) continue;
      if (text.substr(position).starts_with(token.spelling)) return Special{position, id};
    }
  }
  return std::nullopt;
}

}  // namespace llm
