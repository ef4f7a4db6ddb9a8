// llama2.c's first model format: seven int32 (dim, hidden_dim, layers, query heads, KV heads,
// vocabulary, context), then fp32 matrices, those of one kind for all layers together. A negative
// vocabulary size says that the classifier is a matrix of its own at the end.
#include <cmath>
#include <cstring>

#include "llm/model/byte_reader.hpp"
#include "llm/model/failure.hpp"
#include "llm/model/loaders.hpp"
#include "llm/model/weights.hpp"

namespace llm {
namespace {

ModelConfig read_config(ByteReader& reader) {
  ModelConfig config;
  config.dim = reader.scalar<int32_t>("dim");
  config.hidden_dim = reader.scalar<int32_t>("hidden_dim");
  config.num_layers = reader.scalar<int32_t>("num_layers");
  config.num_query_heads = reader.scalar<int32_t>("num_query_heads");
  config.num_kv_heads = reader.scalar<int32_t>("num_kv_heads");
  const int64_t vocabulary = reader.scalar<int32_t>("vocab_size");
  config.vocab_size = std::abs(vocabulary);
  config.tied_embeddings = vocabulary > 0;
  config.context_length = reader.scalar<int32_t>("context_length");
  const bool divides = config.num_query_heads > 0 && config.dim % config.num_query_heads == 0;
  check_io(divides, reader.name(), ": dim is ", config.dim, ", must be a multiple of ",
           config.num_query_heads, " query heads: not a llama2.c model");
  config.head_dim = config.dim / config.num_query_heads;
  config.bos_id = 1;  // the file does not say: SentencePiece's, as llama2.c has them
  config.eos_ids = {2};
  finish_config(config, reader.name());
  return config;
}

// Bounds the layers before any memory is taken by their count.
int64_t bytes_per_layer(const ModelConfig& c) {
  const int64_t q_dim = c.num_query_heads * c.head_dim, kv_dim = c.num_kv_heads * c.head_dim;
  const int64_t elements = c.dim * (2 + 2 * q_dim + 2 * kv_dim + 3 * c.hidden_dim);
  return elements * static_cast<int64_t>(sizeof(float));
}

}  // namespace

Model load_llama2c(FileView file, const LoadOptions& options) {
  ByteReader reader(file.bytes, file.path);
  Model model;
  model.config = read_config(reader);
  check_io(model.config.num_layers <=
               static_cast<int64_t>(reader.left()) / bytes_per_layer(model.config),
           file.path, ": ", model.config.num_layers, " layers don't fit into ", reader.left(),
           " bytes: the file is truncated or not a llama2.c model");
  const std::vector<WeightSlot> slots = make_weight_slots(model);
  std::vector<StoredTensor> tensors(slots.size());
  const auto take = [&](size_t slot) {
    const uint64_t num_bytes = slots[slot].rows * slots[slot].cols * sizeof(float);
    tensors[slot] = {slots[slot].gguf_name, ElementFormat::kFloat32,
                     reader.take(num_bytes, slots[slot].gguf_name.c_str())};
  };
  // In slot order a layer is: attention_norm, wq, wk, wv, wo, ffn_norm, w_gate, w_up, w_down; the
  // file has w_gate, w_down, w_up.
  constexpr size_t kFileOrder[] = {0, 1, 2, 3, 4, 5, 6, 8, 7};
  const size_t num_kinds = std::size(kFileOrder);
  take(0);
  for (const size_t kind : kFileOrder) {
    for (int64_t layer = 0; layer < model.config.num_layers; ++layer)
      take(1 + num_kinds * layer + kind);
  }
  const size_t final_norm = 1 + num_kinds * model.config.num_layers;
  take(final_norm);
  reader.take(model.config.context_length * model.config.head_dim * sizeof(float),
              "the two RoPE tables");  // computed here instead
  if (!model.config.tied_embeddings) take(final_norm + 1);
  check_io(reader.left() == 0, file.path, ": ", reader.left(),
           " bytes follow the last tensor: not a llama2.c model of these dimensions");
  fill_weights(slots, tensors, options, file.path);
  return model;
}

}  // namespace llm
