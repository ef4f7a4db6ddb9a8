// A Llama model of a few thousand weights, written in each format the loaders read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "llm/model/model.hpp"
#include "unit/llm_model/file_writing.hpp"

namespace llm::test {

struct TinyLlama {
  int64_t dim = 32, hidden = 64, layers = 2, query_heads = 4, kv_heads = 2, vocab = 10,
          context = 16;
  bool tied = true;

  struct Weight {
    std::string gguf, hugging_face;
    int64_t rows, cols;
    bool is_norm;
    std::vector<float> values;  // multiples of 1/64 in [-2, 2): exact in fp16 and bf16
  };

  int64_t head_dim() const { return dim / query_heads; }
  // Embedding, layers (attn_norm, q, k, v, output, ffn_norm, gate, up, down), final norm, output.
  std::vector<Weight> weights() const;

  // Without tensors.
  GgufWriter gguf_metadata() const;
  std::string gguf() const;  // every tensor F32
  std::string llama2c() const;
  std::string config_json() const;
};

// dtype is "F32", "F16" or "BF16" for each tensor.
std::string safetensors(const std::vector<TinyLlama::Weight>& weights, const std::string& dtype);

// The values in a 16-bit format, which must be exact.
std::string as_half(const std::vector<float>& values);
std::string as_bfloat(const std::vector<float>& values);

// Every matrix of the model has the tiny one's shape and values.
void expect_weights(const Model& model, const TinyLlama& tiny);

}  // namespace llm::test
