#include "unit/llm_model/tiny_llama.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace llm::test {
namespace {

// The IEEE half of a value with few bits: sign, then exponent and mantissa by definition.
uint16_t exact_half(float value) {
  if (value == 0) return 0;
  int exponent;
  const float fraction = std::frexp(std::fabs(value), &exponent);  // [0.5, 1)
  const auto mantissa = static_cast<uint16_t>((fraction * 2 - 1) * 1024);
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (exponent - 1 + 15) << 10 | mantissa);
}

const Matrix& matrix_of(const Model& model, const TinyLlama& tiny, size_t index) {
  const size_t per_layer = 9, in_layers = per_layer * tiny.layers;
  if (index == 0) return model.token_embedding;
  if (index == 1 + in_layers) return model.final_norm;
  if (index == 2 + in_layers) return model.output;
  const LayerWeights& l = model.layers.at((index - 1) / per_layer);
  const Matrix* const kinds[] = {&l.attention_norm, &l.wq,     &l.wk,   &l.wv,    &l.wo,
                                 &l.ffn_norm,       &l.w_gate, &l.w_up, &l.w_down};
  return *kinds[(index - 1) % per_layer];
}

}  // namespace

std::vector<TinyLlama::Weight> TinyLlama::weights() const {
  std::vector<Weight> all;
  uint32_t state = 12345;
  const auto add = [&](std::string gguf, std::string hugging_face, int64_t rows, int64_t cols,
                       bool is_norm) {
    std::vector<float> values(rows * cols);
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(static_cast<int32_t>(state >> 24) - 128) / 64;
    }
    all.push_back({std::move(gguf), std::move(hugging_face), rows, cols, is_norm, values});
  };
  const int64_t kv_dim = kv_heads * head_dim();
  add("token_embd.weight", "model.embed_tokens.weight", vocab, dim, false);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string g = "blk." + std::to_string(i) + ".";
    const std::string h = "model.layers." + std::to_string(i) + ".";
    add(g + "attn_norm.weight", h + "input_layernorm.weight", 1, dim, true);
    add(g + "attn_q.weight", h + "self_attn.q_proj.weight", dim, dim, false);
    add(g + "attn_k.weight", h + "self_attn.k_proj.weight", kv_dim, dim, false);
    add(g + "attn_v.weight", h + "self_attn.v_proj.weight", kv_dim, dim, false);
    add(g + "attn_output.weight", h + "self_attn.o_proj.weight", dim, dim, false);
    add(g + "ffn_norm.weight", h + "post_attention_layernorm.weight", 1, dim, true);
    add(g + "ffn_gate.weight", h + "mlp.gate_proj.weight", hidden, dim, false);
    add(g + "ffn_up.weight", h + "mlp.up_proj.weight", hidden, dim, false);
    add(g + "ffn_down.weight", h + "mlp.down_proj.weight", dim, hidden, false);
  }
  add("output_norm.weight", "model.norm.weight", 1, dim, true);
  if (!tied) add("output.weight", "lm_head.weight", vocab, dim, false);
  return all;
}

GgufWriter TinyLlama::gguf_metadata() const {
  GgufWriter writer;
  writer.text("general.architecture", "llama")
      .integer("llama.embedding_length", dim)
      .integer("llama.feed_forward_length", hidden)
      .integer("llama.block_count", layers)
      .integer("llama.attention.head_count", query_heads)
      .integer("llama.attention.head_count_kv", kv_heads)
      .integer("llama.context_length", context)
      .real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  return writer;
}

std::string TinyLlama::gguf() const {
  GgufWriter writer = gguf_metadata();
  for (const Weight& weight : weights()) {
    std::vector<uint64_t> shape = {static_cast<uint64_t>(weight.cols)};
    if (!weight.is_norm) shape.push_back(weight.rows);
    writer.tensor(weight.gguf, shape, 0, bytes_of(weight.values));
  }
  return writer.finish();
}

std::string TinyLlama::llama2c() const {
  std::string file;
  for (const int64_t number :
       {dim, hidden, layers, query_heads, kv_heads, tied ? vocab : -vocab, context})
    append(file, static_cast<int32_t>(number));
  const std::vector<Weight> all = weights();
  file += bytes_of(all[0].values);
  // attn_norm, q, k, v, output, ffn_norm, then w1 = gate, w2 = down, w3 = up.
  for (const size_t kind : {0, 1, 2, 3, 4, 5, 6, 8, 7}) {
    for (int64_t layer = 0; layer < layers; ++layer)
      file += bytes_of(all[1 + 9 * layer + kind].values);
  }
  file += bytes_of(all[1 + 9 * layers].values);
  file += bytes_of(std::vector<float>(context * head_dim(), NAN));  // RoPE tables: not to be read
  if (!tied) file += bytes_of(all.back().values);
  return file;
}

std::string TinyLlama::config_json() const {
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"hidden_size", dim},
                                 {"intermediate_size", hidden},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", query_heads},
                                 {"num_key_value_heads", kv_heads},
                                 {"vocab_size", vocab},
                                 {"max_position_embeddings", context},
                                 {"rms_norm_eps", 1e-5},
                                 {"rope_theta", 10000.0},
                                 {"rope_scaling", nullptr},
                                 {"hidden_act", "silu"},
                                 {"attention_bias", false},
                                 {"tie_word_embeddings", tied},
                                 {"bos_token_id", 1},
                                 {"eos_token_id", {2, 3}}};
  return config.dump();
}

std::string safetensors(const std::vector<TinyLlama::Weight>& weights, const std::string& dtype) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const TinyLlama::Weight& weight : weights) {
    const size_t begin = data.size();
    data += dtype == "F32"   ? bytes_of(weight.values)
            : dtype == "F16" ? as_half(weight.values)
                             : as_bfloat(weight.values);
    nlohmann::json shape = {weight.cols};
    if (!weight.is_norm) shape = {weight.rows, weight.cols};
    header[weight.hugging_face] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  std::string file;
  append(file, uint64_t{text.size()});
  return file + text + data;
}

std::string as_half(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float value : values) halves.push_back(exact_half(value));
  return bytes_of(halves);
}

std::string as_bfloat(const std::vector<float>& values) {
  std::string bytes;  // the upper halves of the floats
  for (const float value : values) {
    char raw[4];
    std::memcpy(raw, &value, 4);
    bytes.append(raw + 2, 2);
  }
  return bytes;
}

void expect_weights(const Model& model, const TinyLlama& tiny) {
  ASSERT_EQ(std::ssize(model.layers), tiny.layers);
  const std::vector<TinyLlama::Weight> all = tiny.weights();
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].gguf);
    const Matrix& matrix = matrix_of(model, tiny, i);
    ASSERT_EQ(matrix.rows(), all[i].rows);
    ASSERT_EQ(matrix.cols(), all[i].cols);
    ASSERT_EQ(matrix.format(), ElementFormat::kFloat32);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(matrix.data()) % 64, 0u);
    const std::vector<float> loaded(matrix.f32(), matrix.f32() + all[i].values.size());
    EXPECT_EQ(loaded, all[i].values);
  }
  EXPECT_EQ(model.output.empty(), tiny.tied);
}

}  // namespace llm::test
