#include "llm/tokenizer/byte_level_bpe.hpp"

#include <array>

#include "llm/model/failure.hpp"
#include "llm/tokenizer/merge.hpp"
#include "llm/tokenizer/utf8.hpp"

namespace llm {
namespace {

constexpr uint32_t kNumSpellings = 0x144;  // U+0000 to the spelling of the last byte

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// The byte that each character spells; -1 for none.
std::array<int32_t, kNumSpellings> make_spellings() {
  std::array<int32_t, kNumSpellings> bytes;
  bytes.fill(-1);
  uint32_t next = 0x100;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    bytes[printable ? byte : next++] = byte;
  }
  return bytes;
}

}  // namespace

ByteLevelBpeTokenizer::ByteLevelBpeTokenizer(Vocabulary vocabulary,
                                             const std::vector<MergeRule>& rules, Splitter splitter,
                                             bool whole_words_first, const std::string& file)
    : Tokenizer(std::move(vocabulary)),
      splitter_(std::move(splitter)),
      whole_words_first_(whole_words_first) {
  merges_.reserve(rules.size());
  for (const MergeRule& rule : rules) {
    const auto id_of = [&](const std::string& bytes) {
      const auto id = this->vocabulary().find(bytes);
      check_io(id.has_value(), file, ": merge ", rule.rank, " (\"", rule.left, "\" + \"",
               rule.right, "\") needs the token \"", bytes, "\", which is missing");
      return *id;
    };
    const int32_t left = id_of(rule.left), right = id_of(rule.right);
    merges_.try_emplace(pair_key(left, right),
                        RankedMerge{rule.rank, id_of(rule.left + rule.right)});
  }
}

void ByteLevelBpeTokenizer::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  for (const std::string_view word : splitter_.split(text)) encode_word(word, ids);
}

void ByteLevelBpeTokenizer::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (whole_words_first_) {
    if (const auto id = vocabulary().find(word)) {
      ids.push_back(*id);
      return;
    }
  }
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < word.size(); ++i)
    symbols.push_back({word.substr(i, 1), vocabulary().byte_token(static_cast<uint8_t>(word[i]))});
  const auto find_merge = [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const auto found = merges_.find(pair_key(left.id, right.id));
    if (found == merges_.end()) return std::nullopt;
    return Merge{-static_cast<double>(found->second.rank), found->second.id};
  };
  for (const Symbol& symbol : merge_symbols(std::move(symbols), find_merge))
    ids.push_back(symbol.id);
}

std::string spelled_bytes(std::string_view spelling) {
  static const std::array<int32_t, kNumSpellings> kBytes = make_spellings();
  std::string bytes;
  while (!spelling.empty()) {
    const Utf8Step step = next_utf8(spelling);
    const bool known = step.state == Utf8State::kWhole && step.codepoint < kNumSpellings &&
                       kBytes[step.codepoint] >= 0;
    if (known)
      bytes += static_cast<char>(kBytes[step.codepoint]);
    else
      bytes += spelling.substr(0, step.length);
    spelling.remove_prefix(step.length);
  }
  return bytes;
}

}  // namespace llm
