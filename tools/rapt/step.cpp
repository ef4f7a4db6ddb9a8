#include "step.hpp"

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "llm/model/json_file.hpp"
#include "text_file.hpp"

namespace rapt_tool {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& message) {
  throw rapt::Error(rapt::ErrorCode::kInvalidArgument, message);
}

// An object whose keys must all be asked for: what is left over in the end is refused.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) refuse(where_ + " is not an object");
  }

  bool has(const std::string& key) {
    known_.insert(key);
    return object_.contains(key) && !object_[key].is_null();
  }

  template <typename T>
  T get(const std::string& key) {
    if (!has(key)) refuse(where_ + "." + key + " is missing");
    return convert<T>(object_[key], where_ + "." + key);
  }

  template <typename T>
  T get(const std::string& key, T otherwise) {
    return has(key) ? get<T>(key) : otherwise;
  }

  // A name out of a closed set.
  template <typename Parse>
  auto name(const std::string& key, const std::string& otherwise, Parse parse, const char* valid) {
    const std::string text = get<std::string>(key, otherwise);
    if (auto value = parse(text)) return *value;
    refuse(where_ + "." + key + " is \"" + text + "\": must be " + valid);
  }

  std::vector<int32_t> lengths(const std::string& key) {
    std::vector<int32_t> values;
    if (!has(key) || !object_[key].is_array())
      refuse(where_ + "." + key + " is missing or no list of lengths");
    for (const json& item : object_[key]) {
      const std::string element = where_ + "." + key + "[" + std::to_string(values.size()) + "]";
      values.push_back(convert<int32_t>(item, element));
      if (values.back() < 0)
        refuse(element + " is " + std::to_string(values.back()) + ": must not be negative");
    }
    return values;
  }

  const json& at(const std::string& key) const { return object_[key]; }

  void finish() const {
    for (const auto& [key, value] : object_.items())
      if (!known_.contains(key)) refuse(where_ + "." + key + " is no option of a step");
  }

  template <typename T>
  static T convert(const json& value, const std::string& where) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) refuse(where + " is " + value.dump() + ": must be true or false");
      return value.get<bool>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.is_string()) refuse(where + " is " + value.dump() + ": must be a string");
      return value.get<std::string>();
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!value.is_number()) refuse(where + " is " + value.dump() + ": must be a number");
      return value.get<T>();
    } else {
      using Limits = std::numeric_limits<T>;
      const bool fits = value.is_number_unsigned()
                            ? value.get<uint64_t>() <= static_cast<uint64_t>(Limits::max())
                            : value.is_number_integer() &&
                                  value.get<int64_t>() >= static_cast<int64_t>(Limits::min()) &&
                                  value.get<int64_t>() <= static_cast<int64_t>(Limits::max());
      if (!fits)
        refuse(where + " is " + value.dump() + ": must be an integer up to " +
               std::to_string(Limits::max()));
      return value.get<T>();
    }
  }

 private:
  const json& object_;
  std::string where_;
  std::set<std::string> known_;
};

template <typename Value>
auto parser_of(std::initializer_list<std::pair<const char*, Value>> table) {
  return [values = std::vector(table)](const std::string& text) -> std::optional<Value> {
    for (const auto& [name, value] : values)
      if (text == name) return value;
    return std::nullopt;
  };
}

rapt::AttentionSpec read_spec(Fields& fields) {
  rapt::AttentionSpec spec;
  spec.num_query_heads = fields.get<int32_t>("query_heads");
  spec.num_kv_heads = fields.get<int32_t>("kv_heads", spec.num_query_heads);
  spec.head_dim_qk = fields.get<int32_t>("head_dim");
  spec.head_dim_vo = fields.get<int32_t>("head_dim_vo", 0);
  spec.dtype = fields.name("dtype", "bfloat16", rapt::parse_dtype, "float32, float16 or bfloat16");
  spec.kv_format =
      fields.name("kv_dtype", "auto", rapt::parse_kv_format, "a format rapt::KvFormat names");
  spec.page_size = fields.get<int32_t>("page_size", 16);
  spec.kind = fields.name("kind", "decoder", rapt::parse_attention_kind,
                          "decoder, encoder, encoder_only or encoder_decoder");
  if (fields.has("causal")) spec.causal = fields.get<bool>("causal");
  if (fields.has("window")) {
    const json& window = fields.at("window");
    if (!window.is_array() || window.size() != 2)
      refuse("spec.window is " + window.dump() + ": must be [left, right], -1 for no limit");
    spec.window = {Fields::convert<int64_t>(window[0], "spec.window[0]"),
                   Fields::convert<int64_t>(window[1], "spec.window[1]")};
  }
  if (fields.has("scale")) spec.scale = fields.get<float>("scale");
  spec.softcap = fields.get<float>("softcap", 0);
  spec.alibi = fields.get<bool>("alibi", false);
  spec.sinks = fields.get<bool>("sinks", false);
  spec.custom_mask = fields.get<bool>("custom_mask", false);
  spec.kv_scales =
      fields.name("kv_scales", "none",
                  parser_of<rapt::KvScales>({{"none", rapt::KvScales::kNone},
                                             {"per_tensor", rapt::KvScales::kPerTensor},
                                             {"per_head", rapt::KvScales::kPerHead},
                                             {"per_token_head", rapt::KvScales::kPerTokenHead}}),
                  "none, per_tensor, per_head or per_token_head");
  spec.needs_lse = fields.get<bool>("lse", false);
  spec.batch_invariant = fields.get<bool>("batch_invariant", false);
  fields.finish();
  return spec;
}

}  // namespace

int64_t Step::num_tokens() const {
  return std::accumulate(query_len.begin(), query_len.end(), int64_t{0});
}

int64_t Step::num_kv_rows() const {
  return std::accumulate(kv_len.begin(), kv_len.end(), int64_t{0});
}

Step load_step(const std::string& path) {
  const json document = llm::parse_json(read_text_file("step", path), path);
  Fields fields(document, "step");
  Step step;
  step.name = fields.get<std::string>("name", std::filesystem::path(path).stem());
  if (!fields.has("spec")) refuse("step.spec is missing");
  Fields spec_fields(fields.at("spec"), "spec");
  step.spec = read_spec(spec_fields);
  step.query_len = fields.lengths("query_len");
  step.kv_len = fields.lengths("kv_len");
  if (step.query_len.size() != step.kv_len.size())
    refuse("step.query_len has " + std::to_string(step.query_len.size()) +
           " entries and step.kv_len has " + std::to_string(step.kv_len.size()) +
           ": must be as many");
  step.shape = fields.name("cache_shape", "pages_kv",
                           parser_of<rapt::KvShape>({{"pages_kv", rapt::KvShape::kPagesKv},
                                                     {"kv_pages", rapt::KvShape::kKvPages},
                                                     {"packed", rapt::KvShape::kPacked}}),
                           "pages_kv, kv_pages or packed");
  step.layout = fields.name(
      "cache_layout", "nhd",
      parser_of<rapt::KvLayout>({{"nhd", rapt::KvLayout::kNHD}, {"hnd", rapt::KvLayout::kHND}}),
      "nhd or hnd");
  step.seed = fields.get<uint64_t>("seed", 1);
  step.custom_mask_density = fields.get<double>("custom_mask_density", 0.5);
  if (!(step.custom_mask_density >= 0 && step.custom_mask_density <= 1))
    refuse("step.custom_mask_density is " + std::to_string(step.custom_mask_density) +
           ": must be in [0, 1]");
  if (fields.has("tensors")) {
    const json& tensors = fields.at("tensors");
    if (!tensors.is_object()) refuse("step.tensors is not an object");
    for (const auto& [name, file_name] : tensors.items()) {
      if (!file_name.is_string()) refuse("step.tensors." + name + " is not a file name");
      step.tensors[name] =
          (std::filesystem::path(path).parent_path() / file_name.get<std::string>()).string();
    }
  }
  fields.finish();
  validate(step.spec);
  for (const char* total : {"query_len", "kv_len"}) {
    const int64_t sum = total == std::string("query_len") ? step.num_tokens() : step.num_kv_rows();
    if (sum > std::numeric_limits<int32_t>::max())
      refuse(std::string("step.") + total + " adds up to " + std::to_string(sum) +
             ": at most 2^31 - 1");
  }
  return step;
}

}  // namespace rapt_tool
