// Cutting text into the words that byte-level BPE merges within.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

// Patterns are regular expressions with Unicode classes (PCRE2). Each cuts what the one before
// left: its matches and the stretches between them are pieces of their own, and nothing is lost.
// Bytes that are not UTF-8 match no pattern.
class Splitter {
 public:
  // `file` is for messages; kInvalidArgument for a pattern that does not compile.
  Splitter(const std::vector<std::string>& patterns, const std::string& file);
  ~Splitter();
  Splitter(Splitter&&) noexcept;

  // Views into `text`, in order.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Pattern;
  std::vector<Pattern> patterns_;
};

// The patterns of the pre-tokenizer that GGUF files call `name`, e.g. "gpt-2"; kInvalidArgument
// listing the known ones for another.
std::vector<std::string> splitter_patterns(std::string_view name, const std::string& file);

}  // namespace llm
