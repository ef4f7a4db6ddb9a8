#include "llm/tokenizer/splitter.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <map>

#include "llm/model/failure.hpp"

namespace llm {
namespace {

std::string pcre2_message(int error) {
  unsigned char text[256];
  const int length = pcre2_get_error_message(error, text, sizeof(text));
  return {reinterpret_cast<const char*>(text), static_cast<size_t>(length > 0 ? length : 0)};
}

// As much of a pattern as tells it from others, in whole characters.
std::string beginning_of(const std::string& pattern) {
  constexpr size_t kMost = 200;
  if (pattern.size() <= kMost) return pattern;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(pattern[end]) & 0xc0) == 0x80) end--;
  return pattern.substr(0, end) + "...";
}

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

}  // namespace

struct Splitter::Pattern {
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };

  Pattern(const std::string& pattern, const std::string& file) {
    int error;
    size_t place;
    code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &place,
                             nullptr));
    if (code == nullptr)
      fail(rapt::ErrorCode::kInvalidArgument, file, ": pre-tokenizer pattern ",
           beginning_of(pattern), " does not compile at byte ", place, ": ", pcre2_message(error));
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where there is no JIT it interprets
  }

  void split(std::string_view text, std::vector<std::string_view>& pieces) const {
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(
        pcre2_match_data_create_from_pattern(code.get(), nullptr));
    if (match == nullptr) throw std::bad_alloc();
    size_t done = 0;  // bytes already in pieces
    for (size_t from = 0; from < text.size();) {
      const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                    text.size(), from, 0, match.get(), nullptr);
      if (found == PCRE2_ERROR_NOMATCH) break;
      check_supported(found > 0, "splitting ", text.size(),
                      " bytes of text: ", pcre2_message(found));
      const size_t* span = pcre2_get_ovector_pointer(match.get());
      if (span[0] > done) pieces.push_back(text.substr(done, span[0] - done));
      if (span[1] > span[0]) pieces.push_back(text.substr(span[0], span[1] - span[0]));
      done = span[1];
      from = span[1] > span[0] ? span[1] : span[1] + 1;
    }
    if (done < text.size()) pieces.push_back(text.substr(done));
  }

  std::unique_ptr<pcre2_code, Free> code;
};

Splitter::Splitter(const std::vector<std::string>& patterns, const std::string& file) {
  for (const std::string& pattern : patterns) patterns_.emplace_back(pattern, file);
}

Splitter::~Splitter() = default;
Splitter::Splitter(Splitter&&) noexcept = default;

std::vector<std::string_view> Splitter::split(std::string_view text) const {
  std::vector<std::string_view> pieces = {text};
  for (const Pattern& pattern : patterns_) {
    std::vector<std::string_view> finer;
    for (const std::string_view piece : pieces) pattern.split(piece, finer);
    pieces = std::move(finer);
  }
  return pieces;
}

std::vector<std::string> splitter_patterns(std::string_view name, const std::string& file) {
  // GPT-2's rule: English contractions, then runs of letters, of digits and of other characters,
  // each with a space before it, then white space, whose last character goes to the word after it.
  static const std::string kGpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  static const std::map<std::string_view, std::vector<std::string>> kPatterns = {
      {"gpt-2", {kGpt2}},
      {"smollm", {R"(\p{N})", kGpt2}},
      // Llama 3: contractions in any case, at most three digits, line ends stay with what precedes.
      {"llama-bpe",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
        R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      // What files get that name no rule.
      {"default", {R"([\p{P}$+<=>^~|]+)", kGpt2, R"(\p{N}+)", R"([0-9]{3})"}},
  };
  const auto found = kPatterns.find(name);
  if (found != kPatterns.end()) return found->second;
  std::string known;
  for (const auto& [other, patterns] : kPatterns) known.append(" ").append(other);
  fail(rapt::ErrorCode::kInvalidArgument, file, ": tokenizer.ggml.pre is \"", name,
       "\", must be one of:", known);
}

}  // namespace llm
