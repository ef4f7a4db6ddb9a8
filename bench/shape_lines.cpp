#include "bench/shape_lines.hpp"

#include <charconv>
#include <sstream>

#include "rapt/error.hpp"

namespace rapt::bench {

void ShapeLine::refuse(std::string_view word, const std::string& bound) const {
  throw Error(ErrorCode::kInvalidArgument, file + ":" + std::to_string(number) + ": \"" +
                                               std::string(word) + "\": must be " + bound);
}

int32_t ShapeLine::parse_count(std::string_view text, std::string_view word, int32_t least) const {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least)
    refuse(word, "a number from " + std::to_string(least));
  return value;
}

std::pair<int32_t, int32_t> ShapeLine::parse_heads(std::string_view text,
                                                   std::string_view word) const {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) refuse(word, "query heads/KV heads");
  const int32_t query_heads = parse_count(text.substr(0, slash), word, 1);
  const int32_t kv_heads = parse_count(text.substr(slash + 1), word, 1);
  if (query_heads % kv_heads != 0) refuse(word, "of whole groups: KV heads divide query heads");
  return {query_heads, kv_heads};
}

std::vector<std::string> ShapeLine::values_of(std::string_view word) {
  std::vector<std::string> values;
  const size_t equals = word.find('=');
  if (equals != std::string_view::npos) {
    std::istringstream list{std::string(word.substr(equals + 1))};
    for (std::string value; std::getline(list, value, ',');)
      if (!value.empty()) values.push_back(value);
  }
  if (values.empty()) values.emplace_back();
  return values;
}

std::vector<ShapeLine> shape_lines(std::string_view text, const std::string& file) {
  std::vector<ShapeLine> lines;
  std::istringstream stream{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ShapeLine parsed{file, ++number, {}};
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) parsed.words.push_back(word);
    if (!parsed.words.empty()) lines.push_back(std::move(parsed));
  }
  return lines;
}

}  // namespace rapt::bench
