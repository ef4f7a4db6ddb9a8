// A Llama-architecture model: what its file says about it, and its weights in memory.
//
//   llm::Model model = llm::load_model("models/stories260K/stories260K.bin");
//   const float* row = model.token_embedding.f32() + token * model.config.dim;
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llm/model/matrix.hpp"

namespace llm {

// Which two elements of a head RoPE turns together, for i in [0, head_dim / 2).
enum class RopeStyle : uint8_t {
  kNeighbouringPairs,  // (2i, 2i + 1): llama2.c files and GGUF's llama architecture ("NORM")
  kHalves,             // (i, i + head_dim / 2): Hugging Face checkpoints ("NEOX")
};

struct ModelConfig {
  int64_t dim = 0;         // width of the residual stream
  int64_t hidden_dim = 0;  // width between the feed-forward block's matrices
  int64_t num_layers = 0;
  int64_t num_query_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_query_heads
  int64_t head_dim = 0;      // even; num_query_heads * head_dim need not be dim
  int64_t vocab_size = 0;
  int64_t context_length = 0;  // positions the model was trained for
  float rms_norm_eps = 1e-5f;
  RopeStyle rope_style = RopeStyle::kNeighbouringPairs;
  double rope_theta = 10000.0;
  // [head_dim / 2]: pair i of a token at position p turns by p * rope_frequencies[i] radians. Made
  // from rope_theta and whatever frequency scaling the file asks for, which needs no other care.
  std::vector<double> rope_frequencies;
  bool tied_embeddings = false;  // the output matrix is the token embedding
  // Generation ends at any of these; at BOS, for it begins the next text.
  int32_t bos_id = -1;  // -1 = none
  std::vector<int32_t> eos_ids;
};

// One transformer block:
//   x += wo attention(rope(wq n), rope(wk n), wv n)   with n = rms_norm(x) * attention_norm
//   x += w_down (silu(w_gate m) * (w_up m))           with m = rms_norm(x) * ffn_norm
struct LayerWeights {
  Matrix attention_norm;  // [1, dim]
  Matrix wq;              // [num_query_heads * head_dim, dim]
  Matrix wk;              // [num_kv_heads * head_dim, dim]
  Matrix wv;              // [num_kv_heads * head_dim, dim]
  Matrix wo;              // [dim, num_query_heads * head_dim]
  Matrix ffn_norm;        // [1, dim]
  Matrix w_gate;          // [hidden_dim, dim]
  Matrix w_up;            // [hidden_dim, dim]
  Matrix w_down;          // [dim, hidden_dim]
};

struct Model {
  ModelConfig config;
  Matrix token_embedding;  // [vocab_size, dim]
  std::vector<LayerWeights> layers;
  Matrix final_norm;  // [1, dim]
  Matrix output;      // [vocab_size, dim]; empty if config.tied_embeddings

  // The matrix whose product with the final hidden state is the logits.
  const Matrix& classifier() const { return config.tied_embeddings ? token_embedding : output; }
};

struct LoadOptions {
  int32_t num_threads = 0;  // 0 = the processors there are
  // Keep matrices in the format in which the file stores them. Off: every weight is fp32. Norms are
  // fp32 either way.
  bool keep_format = false;
};

// Loads a GGUF file, a llama2.c .bin, a .safetensors file with its config.json beside it, or a
// directory with config.json and model.safetensors or model.safetensors.index.json, or with one
// .gguf file and no config.json. What a file is follows from its content, not from its name.
//
// Quantised weights, unless kept, are dequantised with the arithmetic of their format in fp32.
// Throws rapt::Error naming the file, the tensor, the value and its bound: kIo for a file that is
// unreadable, truncated or contradicts itself, kInvalidArgument for a sound one that asks for what
// is not supported.
Model load_model(const std::string& path, const LoadOptions& options = {});

}  // namespace llm
