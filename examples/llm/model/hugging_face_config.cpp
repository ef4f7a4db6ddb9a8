#include "llm/model/hugging_face_config.hpp"

#include "llm/model/failure.hpp"
#include "llm/model/json_file.hpp"
#include "llm/model/rope.hpp"
#include "llm/model/weights.hpp"

namespace llm {
namespace {

using nlohmann::json;

int64_t required_integer(const json& config, const char* key, const std::string& file) {
  const auto value = json_integer(config, key, file);
  check_io(value.has_value(), file, ": ", key, " is missing");
  return *value;
}

double required_real(const json& object, const char* key, const std::string& file) {
  const auto value = json_real(object, key, file);
  check_io(value.has_value(), file, ": rope scaling needs ", key, ", which is missing");
  return *value;
}

// What changes the maths without showing in the tensors' shapes.
void refuse_unsupported(const json& config, const std::string& file) {
  const std::string kind = json_text(config, "model_type", file).value_or("llama");
  const json& architectures = json_member(config, "architectures");
  const bool causal_lm =
      architectures.is_null() || architectures == json::array({"LlamaForCausalLM"});
  check_supported(kind == "llama" && causal_lm, file, ": model_type is \"", kind,
                  "\" and architectures ", architectures.dump(),
                  ", must be \"llama\" and [\"LlamaForCausalLM\"]");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    check_supported(!json_boolean(config, key, file).value_or(false), file, ": ", key,
                    " is true; projections with biases are not supported");
  }
  const std::string activation = json_text(config, "hidden_act", file).value_or("silu");
  check_supported(activation == "silu", file, ": hidden_act is \"", activation,
                  "\", must be \"silu\"");
  check_supported(json_member(config, "quantization_config").is_null(), file,
                  ": quantization_config is set; F32, F16 and BF16 tensors are read here");
  check_supported(!json_integer(config, "sliding_window", file), file,
                  ": sliding_window is set, which is not supported");
}

void read_rope_scaling(const json& scaling, ModelConfig& config, const std::string& file) {
  if (scaling.is_null()) return;
  check_io(scaling.is_object(), file, ": rope scaling must be an object");
  const auto newer_name = json_text(scaling, "rope_type", file);
  const std::string kind =
      newer_name ? *newer_name : json_text(scaling, "type", file).value_or("default");
  check_supported(kind == "default" || kind == "linear" || kind == "llama3", file,
                  ": the rope scaling is of type \"", kind,
                  "\"; default, linear and llama3 are supported");
  if (kind == "default") return;
  const double factor = required_real(scaling, "factor", file);
  check_io(factor > 0, file, ": the rope scaling's factor is ", factor, ", must be above 0");
  if (kind == "linear") {
    for (double& frequency : config.rope_frequencies) frequency /= factor;
    return;
  }
  const Llama3Scaling llama3 = {factor, required_real(scaling, "low_freq_factor", file),
                                required_real(scaling, "high_freq_factor", file),
                                required_real(scaling, "original_max_position_embeddings", file)};
  check_io(llama3.low_freq_factor < llama3.high_freq_factor, file, ": low_freq_factor is ",
           llama3.low_freq_factor, ", must be below high_freq_factor, ", llama3.high_freq_factor);
  scale_frequencies(llama3, config.rope_frequencies);
}

int32_t checked_id(const json& value, const char* key, int64_t vocab_size,
                   const std::string& file) {
  const bool in_vocabulary = value.is_number_integer() && value >= 0 && value < vocab_size;
  check_io(in_vocabulary, file, ": ", key, " is ", value.dump(), ", must be in [0, ", vocab_size,
           ")");
  return value.get<int32_t>();
}

void read_special_ids(const json& config, ModelConfig& model, const std::string& file) {
  const json& bos = json_member(config, "bos_token_id");
  if (!bos.is_null()) model.bos_id = checked_id(bos, "bos_token_id", model.vocab_size, file);
  const json& eos = json_member(config, "eos_token_id");
  if (eos.is_array()) {
    for (const json& id : eos)
      model.eos_ids.push_back(checked_id(id, "eos_token_id", model.vocab_size, file));
  } else if (!eos.is_null()) {
    model.eos_ids = {checked_id(eos, "eos_token_id", model.vocab_size, file)};
  }
}

}  // namespace

ModelConfig read_hugging_face_config(FileView file) {
  const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  const json config = parse_json(text, file.path);
  check_io(config.is_object(), file.path, ": must be an object");
  refuse_unsupported(config, file.path);
  ModelConfig model;
  model.dim = required_integer(config, "hidden_size", file.path);
  model.hidden_dim = required_integer(config, "intermediate_size", file.path);
  model.num_layers = required_integer(config, "num_hidden_layers", file.path);
  model.num_query_heads = required_integer(config, "num_attention_heads", file.path);
  model.num_kv_heads =
      json_integer(config, "num_key_value_heads", file.path).value_or(model.num_query_heads);
  model.vocab_size = required_integer(config, "vocab_size", file.path);
  model.context_length = required_integer(config, "max_position_embeddings", file.path);
  if (const auto head_dim = json_integer(config, "head_dim", file.path)) {
    model.head_dim = *head_dim;
  } else {
    check_io(model.num_query_heads > 0 && model.dim % model.num_query_heads == 0, file.path,
             ": hidden_size is ", model.dim, ", must be a multiple of ", model.num_query_heads,
             " query heads");
    model.head_dim = model.dim / model.num_query_heads;
  }
  const double epsilon = json_real(config, "rms_norm_eps", file.path).value_or(1e-6);
  model.rms_norm_eps = static_cast<float>(epsilon);
  model.tied_embeddings = json_boolean(config, "tie_word_embeddings", file.path).value_or(false);
  model.rope_style = RopeStyle::kHalves;
  // Newer files keep theta and scaling together in rope_parameters.
  const json& parameters = json_member(config, "rope_parameters");
  const json& holder = parameters.is_object() ? parameters : config;
  model.rope_theta = json_real(holder, "rope_theta", file.path).value_or(model.rope_theta);
  finish_config(model, file.path);
  read_rope_scaling(parameters.is_null() ? json_member(config, "rope_scaling") : parameters, model,
                    file.path);
  read_special_ids(config, model, file.path);
  return model;
}

}  // namespace llm
