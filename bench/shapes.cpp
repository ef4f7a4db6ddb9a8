#include "bench/shapes.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

#include "rapt/error.hpp"

namespace rapt::bench {
namespace {

struct Place {
  const std::string& file;
  int line;

  [[noreturn]] void refuse(std::string_view word, const std::string& bound) const {
    throw Error(ErrorCode::kInvalidArgument, file + ":" + std::to_string(line) + ": \"" +
                                                 std::string(word) + "\": must be " + bound);
  }
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

int32_t parse_count(std::string_view text, const Place& place, std::string_view word,
                    int32_t least) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least)
    place.refuse(word, "a number from " + std::to_string(least));
  return value;
}

// One of the names, as its index.
template <typename Value>
Value parse_name(std::string_view text, const Place& place, std::string_view word,
                 std::initializer_list<std::pair<std::string_view, Value>> names) {
  std::string known;
  for (const auto& [name, value] : names) {
    if (name == text) return value;
    known += (known.empty() ? "" : " or ") + std::string(name);
  }
  place.refuse(word, known);
}

void set(Shape& shape, std::string_view key, std::string_view value, std::string_view word,
         const Place& place) {
  const auto count = [&](int32_t least) { return parse_count(value, place, word, least); };
  if (key == "dtype") {
    const auto dtype = parse_dtype(value);
    if (!dtype || (*dtype != DType::kFloat32 && size_of(*dtype) != 2))
      place.refuse(word, "fp32, fp16 or bf16");
    shape.dtype = *dtype;
  } else if (key == "heads") {
    const size_t slash = value.find('/');
    if (slash == std::string_view::npos) place.refuse(word, "query heads/KV heads");
    shape.query_heads = parse_count(value.substr(0, slash), place, word, 1);
    shape.kv_heads = parse_count(value.substr(slash + 1), place, word, 1);
  } else if (key == "dim") {
    shape.head_dim = count(8);
  } else if (key == "page") {
    shape.page_size = count(0);
  } else if (key == "cache") {
    shape.cache_shape = parse_name<KvShape>(value, place, word,
                                            {{"pages_kv", KvShape::kPagesKv},
                                             {"kv_pages", KvShape::kKvPages},
                                             {"packed", KvShape::kPacked}});
  } else if (key == "layout") {
    shape.layout = parse_name<KvLayout>(value, place, word,
                                        {{"nhd", KvLayout::kNHD}, {"hnd", KvLayout::kHND}});
  } else if (key == "requests") {
    shape.requests = count(1);
  } else if (key == "queries") {
    shape.queries = count(1);
  } else if (key == "keys") {
    shape.keys = count(1);
  } else if (key == "causal") {
    shape.causal = parse_name<bool>(value, place, word, {{"yes", true}, {"no", false}});
  } else if (key == "state") {
    shape.cold = parse_name<bool>(value, place, word, {{"cold", true}, {"warm", false}});
  } else if (key == "batch") {
    shape.mixed = parse_name<bool>(value, place, word, {{"mixed", true}, {"decode", false}});
  } else {
    place.refuse(word,
                 "quick, or key=value with key dtype, heads, dim, page, cache, layout, requests, "
                 "queries, keys, causal, state or batch");
  }
}

// Every combination of the lists of one line.
std::vector<Shape> parse_line(const std::vector<std::string>& words, const Place& place) {
  if (words.size() < 2) place.refuse(words[0], "followed by a name");
  Shape first;
  first.phase = parse_name<Phase>(
      words[0], place, words[0],
      {{"prefill", Phase::kPrefill}, {"decode", Phase::kDecode}, {"plan", Phase::kPlan}});
  first.name = words[1];
  std::vector<Shape> shapes{first};
  for (size_t i = 2; i < words.size(); i++) {
    const std::string& word = words[i];
    if (word == "quick") {
      for (Shape& shape : shapes) shape.quick = true;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::vector<std::string> values = equals == std::string::npos
                                                ? std::vector<std::string>{}
                                                : split(word.substr(equals + 1), ',');
    if (values.empty()) set(first, "", "", word, place);
    std::vector<Shape> combined;
    for (const Shape& shape : shapes)
      for (const std::string& value : values)
        set(combined.emplace_back(shape), key, value, word, place);
    shapes = std::move(combined);
  }
  for (const Shape& shape : shapes) {
    if (shape.keys == 0) place.refuse(words[1], "followed by keys=");
    if (int64_t{shape.requests} * std::max(shape.queries, shape.keys) >
        std::numeric_limits<int32_t>::max())
      place.refuse(words[1], "of at most 2^31 - 1 tokens: requests=, queries=, keys=");
    if (shape.query_heads % shape.kv_heads != 0) place.refuse(words[1], "of whole groups: heads=");
  }
  return shapes;
}

}  // namespace

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::kPrefill:
      return "prefill";
    case Phase::kDecode:
      return "decode";
    case Phase::kPlan:
      return "plan";
  }
  return "unknown";
}

std::string Shape::describe() const {
  std::ostringstream text;
  text << name << ' ' << rapt::to_string(dtype) << ' ' << query_heads << '/' << kv_heads
       << " heads D " << head_dim << ", ";
  if (phase == Phase::kPrefill) {
    if (requests > 1) text << requests << " x ";
    text << queries << " x " << keys << (causal ? " causal" : " full");
  } else if (phase == Phase::kDecode) {
    text << requests << " x " << keys << " keys " << (cold ? "cold" : "warm");
  } else {
    text << requests << " requests of up to " << keys << " keys, " << (mixed ? "mixed" : "decode");
  }
  if (page_size == 0) {
    text << ", ragged";
  } else {
    text << ", page " << page_size;
    if (phase != Phase::kPlan)
      text << ' ' << rapt::to_string(cache_shape) << ' ' << rapt::to_string(layout);
  }
  return text.str();
}

std::vector<Shape> parse_shapes(std::string_view text, const std::string& file) {
  std::vector<Shape> shapes;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    number++;
    std::istringstream stream(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty()) continue;
    const std::vector<Shape> parsed = parse_line(words, {file, number});
    shapes.insert(shapes.end(), parsed.begin(), parsed.end());
  }
  return shapes;
}

}  // namespace rapt::bench
