// A Llama-architecture model out of GGUF. Its query and key rows are already permuted for RoPE on
// neighbouring pairs.
#include <algorithm>
#include <set>

#include "llm/model/failure.hpp"
#include "llm/model/gguf.hpp"
#include "llm/model/gguf_special_ids.hpp"
#include "llm/model/loaders.hpp"
#include "llm/model/weights.hpp"

namespace llm {
namespace {

constexpr std::string_view kRopeFactors = "rope_freqs.weight";

// ggml's numbers of the element formats.
std::optional<ElementFormat> element_format(uint32_t ggml_type) {
  switch (ggml_type) {
    case 0:
      return ElementFormat::kFloat32;
    case 1:
      return ElementFormat::kFloat16;
    case 2:
      return ElementFormat::kQ4_0;
    case 3:
      return ElementFormat::kQ4_1;
    case 8:
      return ElementFormat::kQ8_0;
    case 14:
      return ElementFormat::kQ6_K;
    case 30:
      return ElementFormat::kBFloat16;
    default:
      return std::nullopt;
  }
}

std::string shape_text(const GgufTensor& tensor) {
  std::string text = "[";
  for (uint32_t axis = 0; axis < tensor.rank; ++axis)
    text += (axis > 0 ? ", " : "") + std::to_string(tensor.shape[axis]);
  return text + "]";
}

// The tensor `name`, whose shape in GGUF's order (fastest first) must be [cols, rows].
StoredTensor find_tensor(const GgufFile& gguf, const std::string& name, int64_t rows,
                         int64_t cols) {
  const auto found = gguf.tensors().find(name);
  check_io(found != gguf.tensors().end(), gguf.path(), ": tensor ", name, " is missing");
  const GgufTensor& tensor = found->second;
  const std::array<uint64_t, GgufTensor::kMaxRank> wanted = {static_cast<uint64_t>(cols),
                                                             static_cast<uint64_t>(rows), 1, 1};
  check_io(tensor.shape == wanted, gguf.path(), ": tensor ", name, " has the shape ",
           shape_text(tensor), ", must be [", cols, ", ", rows, "] by the file's metadata");
  const auto format = element_format(tensor.type);
  check_supported(format.has_value(), gguf.path(), ": tensor ", name, " is of ggml type ",
                  tensor.type, "; F32, F16, BF16, Q8_0, Q4_0, Q4_1 and Q6_K are read here");
  const FormatInfo& info = info_of(*format);
  check_io(cols % info.block_elems == 0, gguf.path(), ": tensor ", name, " has rows of ", cols,
           " elements, must be a multiple of ", info.name, "'s ", info.block_elems);
  const uint64_t num_bytes = rows * (cols / info.block_elems) * info.block_bytes;
  return {name, *format, gguf.tensor_bytes(name, tensor, num_bytes)};
}

// What changes the maths without showing in the tensors' shapes.
void refuse_unsupported(const GgufFile& gguf, const ModelConfig& config) {
  const auto experts = gguf.integer("llama.expert_count").value_or(0);
  check_supported(experts == 0, gguf.path(), ": llama.expert_count is ", experts,
                  "; mixtures of experts are not supported");
  const auto value_length = gguf.integer("llama.attention.value_length").value_or(config.head_dim);
  check_supported(value_length == config.head_dim, gguf.path(),
                  ": llama.attention.value_length is ", value_length, ", must be key_length, ",
                  config.head_dim);
  const auto rotated = gguf.integer("llama.rope.dimension_count").value_or(config.head_dim);
  check_supported(rotated == config.head_dim, gguf.path(), ": llama.rope.dimension_count is ",
                  rotated, ", must be the head dim, ", config.head_dim);
  const auto window = gguf.integer("llama.attention.sliding_window").value_or(0);
  check_supported(window == 0 || window >= config.context_length, gguf.path(),
                  ": llama.attention.sliding_window is ", window,
                  "; windows below the context length are not supported");
}

void read_rope(const GgufFile& gguf, ModelConfig& config) {
  const std::string_view kind = gguf.text("llama.rope.scaling.type").value_or("none");
  check_supported(kind == "none" || kind == "linear", gguf.path(), ": llama.rope.scaling.type is ",
                  kind, "; none and linear are supported");
  double slowdown = 1;
  if (kind == "linear") slowdown = gguf.real("llama.rope.scaling.factor").value_or(1);
  slowdown = gguf.real("llama.rope.scale_linear").value_or(slowdown);  // an older key
  check_io(slowdown > 0, gguf.path(), ": the RoPE scaling factor is ", slowdown,
           ", must be above 0");
  std::vector<float> factors(config.rope_frequencies.size(), 1.0f);
  if (gguf.tensors().contains(kRopeFactors)) {
    const StoredTensor stored =
        find_tensor(gguf, std::string(kRopeFactors), 1, config.head_dim / 2);
    check_supported(stored.format == ElementFormat::kFloat32, gguf.path(), ": tensor ",
                    kRopeFactors, " is ", info_of(stored.format).name, ", must be F32");
    to_float(stored.format, stored.bytes, factors);
  }
  for (size_t i = 0; i < factors.size(); ++i) {
    check_io(factors[i] > 0, gguf.path(), ": tensor ", kRopeFactors, "[", i, "] is ", factors[i],
             ", must be above 0");
    config.rope_frequencies[i] /= slowdown * factors[i];
  }
}

ModelConfig read_config(const GgufFile& gguf) {
  const std::string_view architecture = gguf.text("general.architecture").value_or("");
  check_supported(architecture == "llama", gguf.path(), ": general.architecture is \"",
                  architecture, "\", must be \"llama\"");
  ModelConfig config;
  config.dim = gguf.required_integer("llama.embedding_length");
  config.hidden_dim = gguf.required_integer("llama.feed_forward_length");
  config.num_layers = gguf.required_integer("llama.block_count");
  config.num_query_heads = gguf.required_integer("llama.attention.head_count");
  config.num_kv_heads =
      gguf.integer("llama.attention.head_count_kv").value_or(config.num_query_heads);
  config.context_length = gguf.required_integer("llama.context_length");
  config.head_dim = gguf.integer("llama.attention.key_length").value_or(0);
  if (config.head_dim == 0) {
    check_io(config.num_query_heads > 0 && config.dim % config.num_query_heads == 0, gguf.path(),
             ": llama.embedding_length is ", config.dim, ", must be a multiple of ",
             config.num_query_heads, " query heads");
    config.head_dim = config.dim / config.num_query_heads;
  }
  const auto epsilon = gguf.real("llama.attention.layer_norm_rms_epsilon");
  check_io(epsilon.has_value(), gguf.path(),
           ": key llama.attention.layer_norm_rms_epsilon is missing");
  config.rms_norm_eps = static_cast<float>(*epsilon);
  config.rope_theta = gguf.real("llama.rope.freq_base").value_or(config.rope_theta);

  const auto embedding = gguf.tensors().find("token_embd.weight");
  check_io(embedding != gguf.tensors().end(), gguf.path(),
           ": tensor token_embd.weight is missing: the file holds no model");
  config.vocab_size = static_cast<int64_t>(embedding->second.shape[1]);
  const auto said = gguf.integer("llama.vocab_size").value_or(config.vocab_size);
  check_io(said == config.vocab_size, gguf.path(), ": llama.vocab_size is ", said,
           ", but token_embd.weight has ", config.vocab_size, " rows");
  config.tied_embeddings = !gguf.tensors().contains("output.weight");
  finish_config(config, gguf.path());
  read_rope(gguf, config);
  refuse_unsupported(gguf, config);
  const SpecialIds ids = read_special_ids(gguf, config.vocab_size);
  config.bos_id = ids.bos;
  config.eos_ids = ids.eos;
  return config;
}

}  // namespace

Model load_gguf(FileView file, const LoadOptions& options) {
  const GgufFile gguf(file);
  Model model;
  model.config = read_config(gguf);
  check_io(num_matrices(model.config) <= std::ssize(gguf.tensors()), file.path,
           ": llama.block_count is ", model.config.num_layers, ", which takes ",
           num_matrices(model.config), " tensors, but there are only ", gguf.tensors().size());
  const std::vector<WeightSlot> slots = make_weight_slots(model);
  std::vector<StoredTensor> tensors;
  std::set<std::string_view> used = {kRopeFactors};
  for (const WeightSlot& slot : slots) {
    tensors.push_back(find_tensor(gguf, slot.gguf_name, slot.rows, slot.cols));
    used.insert(slot.gguf_name);
  }
  for (const auto& [name, tensor] : gguf.tensors()) {
    check_supported(used.contains(name), file.path, ": tensor ", name,
                    " is no part of a Llama model as it is computed here");
  }
  fill_weights(slots, tensors, options, file.path);
  return model;
}

}  // namespace llm
