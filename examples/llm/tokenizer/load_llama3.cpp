// Llama 3's tokenizer.model: a line for each token, its bytes in base64 and its id, in the order
// the tokens were learnt. Two neighbours merge if their bytes together are a token, the lowest id
// first. The pattern that cuts text and the special tokens, which follow the others, are not in the
// file.
#include <array>
#include <charconv>

#include "llm/model/failure.hpp"
#include "llm/tokenizer/byte_level_bpe.hpp"
#include "llm/tokenizer/loaders.hpp"

namespace llm {
namespace {

constexpr size_t kNumTokens = 128000;
constexpr size_t kNumSpecial = 256;

std::string_view text_of(FileView file) {
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

// Bytes of canonical base64; nothing for anything else.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_padding = i >= text.size() - padding;
    const size_t digit = is_padding ? 0 : kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (i % 4 == 3) {
      for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift & 0xffu);
      bits = 0;
    }
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

// The next line's token, whose id must be `id`; takes the line off `rest`.
std::optional<std::string> next_token(std::string_view& rest, size_t id) {
  const std::string_view line = rest.substr(0, rest.find('\n'));
  rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const std::string_view number = line.substr(space + 1);
  size_t said = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), said);
  if (error != std::errc() || end != number.data() + number.size() || said != id)
    return std::nullopt;
  return from_base64(line.substr(0, space));
}

std::string special_name(size_t index) {
  constexpr std::array<const char*, 11> kNames = {"begin_of_text",
                                                  "end_of_text",
                                                  "reserved_special_token_0",
                                                  "reserved_special_token_1",
                                                  "finetune_right_pad_id",
                                                  "step_id",
                                                  "start_header_id",
                                                  "end_header_id",
                                                  "eom_id",
                                                  "eot_id",
                                                  "python_tag"};
  std::string name = index < kNames.size()
                         ? kNames[index]
                         : "reserved_special_token_" + std::to_string(index + 2 - kNames.size());
  return "<|" + name + "|>";
}

}  // namespace

bool recognises_llama3_tokenizer(FileView file) {
  std::string_view text = text_of(file);
  return next_token(text, 0).has_value();
}

std::unique_ptr<Tokenizer> load_llama3_tokenizer(FileView file) {
  std::vector<Token> tokens;
  for (std::string_view rest = text_of(file); !rest.empty();) {
    auto bytes = next_token(rest, tokens.size());
    check_io(bytes.has_value(), file.path, ": line ", tokens.size() + 1,
             " must be a token in base64, a space and the id ", tokens.size());
    Token& token = tokens.emplace_back();
    token.spelling = *bytes;
    token.bytes = std::move(*bytes);
  }
  check_supported(tokens.size() == kNumTokens, file.path, ": has ", tokens.size(),
                  " tokens; only Llama 3's file, which has ", kNumTokens, ", is read here");
  for (size_t i = 0; i < kNumSpecial; ++i) {
    Token& token = tokens.emplace_back();
    token.spelling = special_name(i);
    token.kind = TokenKind::kControl;
  }
  Vocabulary vocabulary(std::move(tokens), file.path);
  vocabulary.bos_id = kNumTokens;
  vocabulary.eos_ids = {kNumTokens + 1, kNumTokens + 9, kNumTokens + 8};  // text, turn, message
  vocabulary.adds_bos = true;

  std::vector<ByteLevelBpeTokenizer::MergeRule> rules;  // every way to cut a token into two
  for (int32_t id = 0; id < static_cast<int32_t>(kNumTokens); ++id) {
    const std::string& bytes = vocabulary.token(id).bytes;
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const std::string left = bytes.substr(0, cut), right = bytes.substr(cut);
      if (vocabulary.find(left) && vocabulary.find(right)) rules.push_back({left, right, id});
    }
  }
  return std::make_unique<ByteLevelBpeTokenizer>(
      std::move(vocabulary), rules, Splitter(splitter_patterns("llama-bpe", file.path), file.path),
      /*whole_words_first=*/true, file.path);
}

}  // namespace llm
