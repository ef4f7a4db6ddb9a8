// llama2.c's tokenizer file: int32 max_token_length, then for each token a float score, an int32
// length and the bytes, to the end of the file. It is a SentencePiece vocabulary with spaces
// already in place and without token kinds: 0 is unknown, 1 BOS, 2 EOS, and "<0x41>" stands for a
// byte.
#include "llm/model/byte_reader.hpp"
#include "llm/tokenizer/loaders.hpp"
#include "llm/tokenizer/sentencepiece.hpp"

namespace llm {

std::unique_ptr<Tokenizer> load_llama2c_tokenizer(FileView file) {
  constexpr size_t kNumNamed = 3;
  ByteReader reader(file.bytes, file.path);
  const auto longest = reader.scalar<int32_t>("max_token_length");
  check_io(longest > 0, file.path, ": max_token_length is ", longest,
           ", must be at least 1: not a GGUF file, a tokenizer.json or a llama2.c tokenizer");
  std::vector<Token> tokens;
  while (reader.left() > 0) {
    Token token;
    token.score = reader.scalar<float>("a token's score");
    const auto length = reader.scalar<int32_t>("a token's length");
    check_io(length >= 0, file.path, ": token ", tokens.size(), " has the length ", length);
    token.spelling = reader.text(length, "a token");
    if (const auto byte = spelled_byte(token.spelling)) {
      token.kind = TokenKind::kByte;
      token.bytes.assign(1, static_cast<char>(*byte));
    } else if (tokens.size() < kNumNamed) {
      token.kind = tokens.empty() ? TokenKind::kUnknown : TokenKind::kControl;
    } else {
      token.bytes = token.spelling;
    }
    tokens.push_back(std::move(token));
  }
  check_io(tokens.size() >= kNumNamed, file.path, ": has ", tokens.size(),
           " tokens, needs at least ", kNumNamed, ": unknown, BOS and EOS");
  Vocabulary vocabulary(std::move(tokens), file.path);
  vocabulary.unknown_id = 0;
  vocabulary.bos_id = 1;
  vocabulary.eos_ids = {2};
  vocabulary.adds_bos = true;
  vocabulary.adds_space_prefix = true;
  return std::make_unique<SentencePieceTokenizer>(std::move(vocabulary));
}

}  // namespace llm
