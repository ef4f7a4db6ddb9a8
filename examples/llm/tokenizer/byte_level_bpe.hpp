// GPT-2's byte-level BPE: words cut by a splitter, then bytes merged in the order the merges were
// learnt.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "llm/tokenizer/splitter.hpp"
#include "llm/tokenizer/tokenizer.hpp"

namespace llm {

class ByteLevelBpeTokenizer final : public Tokenizer {
 public:
  // Two tokens that merge, by their bytes; the rule of the lowest rank is applied first.
  struct MergeRule {
    std::string left, right;
    int32_t rank;
  };

  // `whole_words_first`: a word that is a token is not merged up to it (Llama 3).
  // kIo if a rule's tokens, or the one they make, are not in the vocabulary.
  ByteLevelBpeTokenizer(Vocabulary vocabulary, const std::vector<MergeRule>& rules,
                        Splitter splitter, bool whole_words_first, const std::string& file);

 private:
  struct RankedMerge {
    int32_t rank;
    int32_t id;
  };

  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  std::unordered_map<uint64_t, RankedMerge> merges_;  // by (left id << 32 | right id)
  Splitter splitter_;
  bool whole_words_first_;
};

// Files spell each byte as a printable character: most as themselves, the others as U+0100 and up
// (a space is U+0120). Characters that spell no byte stay as they are.
std::string spelled_bytes(std::string_view spelling);

}  // namespace llm
