#include "llm/tokenizer/sentencepiece.hpp"

#include <charconv>

#include "llm/tokenizer/merge.hpp"
#include "llm/tokenizer/utf8.hpp"

namespace llm {

void SentencePieceTokenizer::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  std::string spaced(adds_space_prefix() ? 1 : 0, ' ');
  spaced += with_spaces(text);
  std::vector<Symbol> symbols;
  for (std::string_view rest = spaced; !rest.empty();) {
    const Utf8Step step = next_utf8(rest);
    const std::string_view character =
        rest.substr(0, step.state == Utf8State::kWhole ? step.length : 1);
    symbols.push_back({character, vocabulary().find(character).value_or(-1)});
    rest.remove_prefix(character.size());
  }
  const auto find_merge = [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const std::string_view both(left.bytes.data(), left.bytes.size() + right.bytes.size());
    const auto id = vocabulary().find(both);
    if (!id) return std::nullopt;
    return Merge{vocabulary().token(*id).score, *id};
  };
  for (const Symbol& symbol : merge_symbols(std::move(symbols), find_merge)) {
    if (symbol.id >= 0) {
      ids.push_back(symbol.id);
    } else {
      for (const char byte : symbol.bytes)
        ids.push_back(vocabulary().byte_token(static_cast<uint8_t>(byte)));
    }
  }
}

std::string with_spaces(std::string_view piece) {
  constexpr std::string_view kLowerBlock = "\xe2\x96\x81";  // U+2581
  std::string spaced;
  while (!piece.empty()) {
    const bool space = piece.starts_with(kLowerBlock);
    spaced += space ? ' ' : piece[0];
    piece.remove_prefix(space ? kLowerBlock.size() : 1);
  }
  return spaced;
}

std::optional<uint8_t> spelled_byte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || !piece.ends_with('>')) return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  if (error != std::errc() || end != piece.data() + 5) return std::nullopt;
  return byte;
}

}  // namespace llm
