// SentencePiece's BPE: characters merged into the piece of the highest score, with byte fallback.
#pragma once

#include "llm/tokenizer/tokenizer.hpp"

namespace llm {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  using Tokenizer::Tokenizer;

 private:
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const override;
};

// SentencePiece writes a space as U+2581 in its pieces; Rapt's vocabularies hold real spaces.
std::string with_spaces(std::string_view piece);

// The byte that a piece spelled "<0x41>" stands for.
std::optional<uint8_t> spelled_byte(std::string_view piece);

}  // namespace llm
