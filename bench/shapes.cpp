#include "bench/shapes.hpp"

#include <algorithm>
#include <limits>
#include <sstream>
#include <tuple>

#include "bench/shape_lines.hpp"

namespace rapt::bench {
namespace {

void set(Shape& shape, std::string_view key, std::string_view value, std::string_view word,
         const ShapeLine& line) {
  const auto count = [&](int32_t least) { return line.parse_count(value, word, least); };
  if (key == "quick" && value.empty()) {
    shape.quick = true;
  } else if (key == "dtype") {
    const auto dtype = parse_dtype(value);
    if (!dtype || (*dtype != DType::kFloat32 && size_of(*dtype) != 2))
      line.refuse(word, "fp32, fp16 or bf16");
    shape.dtype = *dtype;
  } else if (key == "heads") {
    std::tie(shape.query_heads, shape.kv_heads) = line.parse_heads(value, word);
  } else if (key == "dim") {
    shape.head_dim = count(8);
  } else if (key == "page") {
    shape.page_size = count(0);
  } else if (key == "cache") {
    shape.cache_shape = line.parse_name<KvShape>(value, word,
                                                 {{"pages_kv", KvShape::kPagesKv},
                                                  {"kv_pages", KvShape::kKvPages},
                                                  {"packed", KvShape::kPacked}});
  } else if (key == "layout") {
    shape.layout =
        line.parse_name<KvLayout>(value, word, {{"nhd", KvLayout::kNHD}, {"hnd", KvLayout::kHND}});
  } else if (key == "requests") {
    shape.requests = count(1);
  } else if (key == "queries") {
    shape.queries = count(1);
  } else if (key == "keys") {
    shape.keys = count(1);
  } else if (key == "causal") {
    shape.causal = line.parse_name<bool>(value, word, {{"yes", true}, {"no", false}});
  } else if (key == "state") {
    shape.cold = line.parse_name<bool>(value, word, {{"cold", true}, {"warm", false}});
  } else if (key == "batch") {
    shape.mixed = line.parse_name<bool>(value, word, {{"mixed", true}, {"decode", false}});
  } else {
    line.refuse(word,
                "quick, or key=value with key dtype, heads, dim, page, cache, layout, requests, "
                "queries, keys, causal, state or batch");
  }
}

std::vector<Shape> parse_line(const ShapeLine& line) {
  const std::vector<std::string>& words = line.words;
  if (words.size() < 2) line.refuse(words[0], "followed by a name");
  Shape first;
  first.phase = line.parse_name<Phase>(
      words[0], words[0],
      {{"prefill", Phase::kPrefill}, {"decode", Phase::kDecode}, {"plan", Phase::kPlan}});
  first.name = words[1];
  std::vector<Shape> shapes = line.combine(first, 2, [&](auto&&... args) { set(args..., line); });
  for (const Shape& shape : shapes) {
    if (shape.keys == 0) line.refuse(words[1], "followed by keys=");
    if (int64_t{shape.requests} * std::max(shape.queries, shape.keys) >
        std::numeric_limits<int32_t>::max())
      line.refuse(words[1], "of at most 2^31 - 1 tokens: requests=, queries=, keys=");
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

AttentionSpec spec_of(const Shape& shape) {
  AttentionSpec spec;
  spec.num_query_heads = shape.query_heads;
  spec.num_kv_heads = shape.kv_heads;
  spec.head_dim_qk = shape.head_dim;
  spec.dtype = shape.dtype;
  spec.page_size = shape.page_size;
  spec.causal = shape.causal;
  return spec;
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
  for (const ShapeLine& line : shape_lines(text, file)) {
    const std::vector<Shape> parsed = parse_line(line);
    shapes.insert(shapes.end(), parsed.begin(), parsed.end());
  }
  return shapes;
}

}  // namespace rapt::bench
