// Lines of shapes/*.txt: a word of its own is a flag, key=a,b,c stands for every one of the values,
// # begins a comment.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rapt::bench {

// The words of one line, and where they stand. What throws, throws Error(kInvalidArgument) that
// names the file, the line and the word.
struct ShapeLine {
  std::string file;
  int number = 0;
  std::vector<std::string> words;  // at least one

  // "file:3: "word": must be BOUND".
  [[noreturn]] void refuse(std::string_view word, const std::string& bound) const;
  int32_t parse_count(std::string_view text, std::string_view word, int32_t least) const;
  // "32/8": query heads and KV heads, of whole groups.
  std::pair<int32_t, int32_t> parse_heads(std::string_view text, std::string_view word) const;

  // One of the names, as its value.
  template <typename Value>
  Value parse_name(std::string_view text, std::string_view word,
                   std::initializer_list<std::pair<std::string_view, Value>> names) const {
    std::string known;
    for (const auto& [name, value] : names) {
      if (name == text) return value;
      known += (known.empty() ? "" : " or ") + std::string(name);
    }
    refuse(word, known);
  }

  // Every combination of the lists from the word `begin` on: set(shape, key, value, word) for each
  // value of each word, where that of a flag is empty.
  template <typename Shape, typename Set>
  std::vector<Shape> combine(const Shape& first, size_t begin, const Set& set) const {
    std::vector<Shape> shapes{first};
    for (size_t i = begin; i < words.size(); i++) {
      const std::string& word = words[i];
      const std::string key = word.substr(0, word.find('='));
      std::vector<Shape> combined;
      for (const Shape& shape : shapes)
        for (const std::string& value : values_of(word))
          set(combined.emplace_back(shape), key, value, word);
      shapes = std::move(combined);
    }
    return shapes;
  }

 private:
  // "key=a,b": a and b; at least one, which may be empty.
  static std::vector<std::string> values_of(std::string_view word);
};

// Lines without words are left out.
std::vector<ShapeLine> shape_lines(std::string_view text, const std::string& file);

}  // namespace rapt::bench
