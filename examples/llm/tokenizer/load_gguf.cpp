// The tokenizer embedded in a GGUF file.
#include "llm/model/gguf.hpp"
#include "llm/model/gguf_special_ids.hpp"
#include "llm/tokenizer/byte_level_bpe.hpp"
#include "llm/tokenizer/loaders.hpp"
#include "llm/tokenizer/sentencepiece.hpp"

namespace llm {
namespace {

// The numbers of tokenizer.ggml.token_type.
TokenKind token_kind(int64_t type, size_t id, const std::string& file) {
  switch (type) {
    case 1:
      return TokenKind::kNormal;
    case 2:
      return TokenKind::kUnknown;
    case 3:
      return TokenKind::kControl;
    case 4:
      return TokenKind::kUserDefined;
    case 5:  // a place in the vocabulary without a token
      return TokenKind::kUnknown;
    case 6:
      return TokenKind::kByte;
    default:
      fail_io(file, ": tokenizer.ggml.token_type[", id, "] is ", type, ", must be in [1, 6]");
  }
}

void check_length(const GgufFile& gguf, const char* key, size_t length, size_t num_tokens) {
  check_io(length == num_tokens, gguf.path(), ": ", key, " has ", length, " elements for ",
           num_tokens, " tokens");
}

// Spells a token's bytes the way the tokenizer's kind does.
std::string token_bytes(const Token& token, bool sentencepiece, size_t id,
                        const std::string& file) {
  switch (token.kind) {
    case TokenKind::kNormal:
      return sentencepiece ? with_spaces(token.spelling) : spelled_bytes(token.spelling);
    case TokenKind::kUserDefined:
      return token.spelling;
    case TokenKind::kByte: {
      const auto byte = spelled_byte(token.spelling);
      check_io(byte.has_value(), file, ": token ", id, " is of the byte kind but spelled \"",
               token.spelling, "\", must be like <0x41>");
      return std::string(1, static_cast<char>(*byte));
    }
    case TokenKind::kControl:
    case TokenKind::kUnknown:
      return {};
  }
  return {};
}

Vocabulary read_vocabulary(const GgufFile& gguf, bool sentencepiece) {
  const auto spellings = gguf.texts("tokenizer.ggml.tokens");
  check_io(spellings.has_value(), gguf.path(), ": key tokenizer.ggml.tokens is missing");
  const size_t count = spellings->size();
  const auto types = gguf.integers("tokenizer.ggml.token_type");
  if (types) check_length(gguf, "tokenizer.ggml.token_type", types->size(), count);
  const auto scores = gguf.reals("tokenizer.ggml.scores");
  if (scores) check_length(gguf, "tokenizer.ggml.scores", scores->size(), count);
  check_io(scores.has_value() || !sentencepiece, gguf.path(),
           ": key tokenizer.ggml.scores is missing");
  std::vector<Token> tokens(count);
  for (size_t id = 0; id < count; ++id) {
    Token& token = tokens[id];
    token.kind = types ? token_kind((*types)[id], id, gguf.path()) : TokenKind::kNormal;
    token.spelling = (*spellings)[id];
    if (sentencepiece && token.kind == TokenKind::kUserDefined)
      token.spelling = with_spaces(token.spelling);
    if (scores) token.score = (*scores)[id];
    token.bytes = token_bytes(token, sentencepiece, id, gguf.path());
  }
  Vocabulary vocabulary(std::move(tokens), gguf.path());
  SpecialIds ids = read_special_ids(gguf, vocabulary.size());
  vocabulary.bos_id = ids.bos;
  vocabulary.unknown_id = ids.unknown;
  vocabulary.eos_ids = std::move(ids.eos);
  return vocabulary;
}

std::vector<ByteLevelBpeTokenizer::MergeRule> read_merges(const GgufFile& gguf) {
  const auto lines = gguf.texts("tokenizer.ggml.merges");
  check_io(lines.has_value(), gguf.path(), ": key tokenizer.ggml.merges is missing");
  std::vector<ByteLevelBpeTokenizer::MergeRule> rules;
  rules.reserve(lines->size());
  for (const std::string_view line : *lines) {
    const size_t space = line.find(' ', 1);  // a token is never empty
    check_io(space != std::string_view::npos, gguf.path(), ": tokenizer.ggml.merges[", rules.size(),
             "] is \"", line, "\", must be two tokens with a space between them");
    rules.push_back({spelled_bytes(line.substr(0, space)), spelled_bytes(line.substr(space + 1)),
                     static_cast<int32_t>(rules.size())});
  }
  return rules;
}

}  // namespace

std::unique_ptr<Tokenizer> load_gguf_tokenizer(FileView file) {
  const GgufFile gguf(file);
  const auto model = gguf.text("tokenizer.ggml.model");
  check_io(model.has_value(), file.path,
           ": key tokenizer.ggml.model is missing: the file has no tokenizer");
  const bool sentencepiece = *model == "llama";
  check_supported(sentencepiece || *model == "gpt2", file.path, ": tokenizer.ggml.model is \"",
                  *model, "\", must be \"llama\" (SentencePiece BPE) or \"gpt2\"");
  Vocabulary vocabulary = read_vocabulary(gguf, sentencepiece);
  const auto adds_bos = gguf.boolean("tokenizer.ggml.add_bos_token");
  const auto adds_space = gguf.boolean("tokenizer.ggml.add_space_prefix");
  if (sentencepiece) {
    vocabulary.adds_bos = adds_bos.value_or(true) && vocabulary.bos_id >= 0;
    vocabulary.adds_space_prefix = adds_space.value_or(true);
    return std::make_unique<SentencePieceTokenizer>(std::move(vocabulary));
  }
  const std::string_view rule = gguf.text("tokenizer.ggml.pre").value_or("default");
  const bool llama3 = rule == "llama-bpe";
  vocabulary.adds_bos = adds_bos.value_or(llama3) && vocabulary.bos_id >= 0;
  return std::make_unique<ByteLevelBpeTokenizer>(
      std::move(vocabulary), read_merges(gguf),
      Splitter(splitter_patterns(rule, file.path), file.path), llama3, file.path);
}

}  // namespace llm
