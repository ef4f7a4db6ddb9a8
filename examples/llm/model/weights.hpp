// From tensors as files hold them to a model's matrices: what the loaders share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llm/model/element_format.hpp"
#include "llm/model/model.hpp"

namespace llm {

// Checks that the config's numbers are possible, fit together and keep every product of two of them
// in 64 bits. Fills rope_frequencies from rope_theta, without scaling.
void finish_config(ModelConfig& config, const std::string& file);

// A matrix of the model, under the names files give it, with the shape the config asks for.
struct WeightSlot {
  Matrix* target;
  std::string gguf_name;          // "blk.0.attn_q.weight"
  std::string hugging_face_name;  // "model.layers.0.self_attn.q_proj.weight"
  int64_t rows, cols;
  bool is_norm;  // a vector: files give it one axis
};

// How many slots a model with this config has.
int64_t num_matrices(const ModelConfig& config);

// All matrices of a model with this config, whose layers it creates: check that the file can hold
// num_matrices() first. Order: embedding, layers, final norm, output unless tied.
std::vector<WeightSlot> make_weight_slots(Model& model);

// A tensor in a file: the elements of a row one after the other, rows without a gap.
struct StoredTensor {
  std::string name;  // the file's, for messages
  ElementFormat format;
  std::span<const std::byte> bytes;  // exactly the slot's rows * cols elements
};

// Allocates and fills every slot's matrix from the tensor of the same index, on several threads.
// Refuses tensors that overlap: a file of that kind could ask for more memory than it fills.
void fill_weights(const std::vector<WeightSlot>& slots, const std::vector<StoredTensor>& tensors,
                  const LoadOptions& options, const std::string& file);

}  // namespace llm
