#include "emulator/driver/entry_names.hpp"

#include <algorithm>
#include <cctype>

namespace rapt::emulator {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Words, strings with their quotes, and single characters; neither blanks nor comments.
std::vector<std::string_view> tokens_of(std::string_view text) {
  std::vector<std::string_view> tokens;
  while (!text.empty()) {
    size_t length = 1;
    const auto past = [&](size_t at, size_t bytes) {
      return std::min(at, text.size() - bytes) + bytes;
    };
    if (std::isspace(static_cast<unsigned char>(text[0]))) {
      text.remove_prefix(1);
      continue;
    }
    if (text.substr(0, 2) == "//") {
      text.remove_prefix(std::min(text.find('\n'), text.size()));
      continue;
    }
    if (text.substr(0, 2) == "/*") {
      text.remove_prefix(past(text.find("*/", 2), 2));
      continue;
    }
    if (text[0] == '"') {
      while (length < text.size() && text[length] != '"') length += text[length] == '\\' ? 2 : 1;
      length = past(length, 1);
    } else if (is_word(text[0])) {
      length =
          static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_word) - text.begin());
    }
    tokens.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return tokens;
}

}  // namespace

std::vector<std::string> entry_names(std::string_view text) {
  constexpr std::string_view kBegin[] = {"extern", "\"C\"", "GLOBAL"};
  const std::vector<std::string_view> tokens = tokens_of(text);
  std::vector<std::string> names;
  auto at = tokens.begin();
  while ((at = std::search(at, tokens.end(), std::begin(kBegin), std::end(kBegin))) !=
         tokens.end()) {
    // The name is the word before the first parenthesis that is not of LAUNCH_BOUNDS.
    while ((at = std::find(at, tokens.end(), "(")) != tokens.end() &&
           *std::prev(at) == "LAUNCH_BOUNDS")
      at = std::find(at, tokens.end(), ")");
    if (at != tokens.end()) names.emplace_back(*std::prev(at));
  }
  return names;
}

}  // namespace rapt::emulator
