#include "models_file.hpp"

#include <cstdlib>
#include <tuple>

#include "bench/shape_lines.hpp"
#include "rapt/error.hpp"
#include "text_file.hpp"

namespace rapt_tool {
namespace {

using rapt::AttentionSpec;
using rapt::bench::ShapeLine;

float parse_softcap(const std::string& text, const std::string& word, const ShapeLine& line) {
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  if (text.empty() || *end || !(value > 0)) line.refuse(word, "a number above 0, such as 50");
  return value;
}

void set(AttentionSpec& spec, const std::string& key, const std::string& value,
         const std::string& word, const ShapeLine& line) {
  const auto is_flag = [&](const char* name) { return key == name && word == name; };
  if (key == "heads") {
    std::tie(spec.num_query_heads, spec.num_kv_heads) = line.parse_heads(value, word);
  } else if (key == "dim") {
    spec.head_dim_qk = line.parse_count(value, word, 1);
  } else if (key == "dim_vo") {
    spec.head_dim_vo = line.parse_count(value, word, 1);
  } else if (key == "dtype") {
    spec.dtype = line.parse_name<rapt::DType>(
        value, word, {{"fp16", rapt::DType::kFloat16}, {"bf16", rapt::DType::kBFloat16}});
  } else if (key == "page") {
    spec.page_size = line.parse_count(value, word, 0);
  } else if (key == "softcap") {
    spec.softcap = parse_softcap(value, word, line);
  } else if (is_flag("alibi")) {
    spec.alibi = true;
  } else if (is_flag("sinks")) {
    spec.sinks = true;
  } else if (is_flag("custom_mask")) {
    spec.custom_mask = true;
  } else {
    line.refuse(word,
                "alibi, sinks or custom_mask, or key=value with key heads, dim, dim_vo, dtype, "
                "page or softcap");
  }
}

std::vector<AttentionSpec> parse_line(const ShapeLine& line) {
  const std::string& name = line.words[0];
  if (name.find('=') != name.npos) line.refuse(name, "a model's name, before what it has");
  const auto set_of_line = [&](AttentionSpec& spec, const std::string& key,
                               const std::string& value,
                               const std::string& word) { set(spec, key, value, word, line); };
  std::vector<AttentionSpec> specs = line.combine(AttentionSpec{}, 1, set_of_line);
  for (const AttentionSpec& spec : specs) {
    if (spec.num_query_heads == 0 || spec.head_dim_qk == 0)
      line.refuse(name, "followed by heads= and dim=, such as heads=32/8 dim=128");
    try {
      rapt::validate(spec);
    } catch (const rapt::Error& error) {
      line.refuse(name, std::string("a valid spec: ") + error.what());
    }
  }
  return specs;
}

}  // namespace

std::vector<AttentionSpec> load_models(const std::string& path) {
  std::vector<AttentionSpec> specs;
  for (const ShapeLine& line : rapt::bench::shape_lines(read_text_file("--models", path), path)) {
    const std::vector<AttentionSpec> parsed = parse_line(line);
    specs.insert(specs.end(), parsed.begin(), parsed.end());
  }
  if (specs.empty())
    throw rapt::Error(rapt::ErrorCode::kInvalidArgument,
                      path + " has no model: a line of it is `name heads=32/8 dim=128`");
  return specs;
}

}  // namespace rapt_tool
