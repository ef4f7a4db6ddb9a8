// One attention step described in a JSON file: the spec, the requests' lengths, the cache's
// geometry and where the tensors come from. docs/step_files.md has the format.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rapt/rapt.hpp"

namespace rapt_tool {

struct Step {
  std::string name;
  rapt::AttentionSpec spec;
  std::vector<int32_t> query_len;  // [B]
  std::vector<int32_t> kv_len;     // [B]
  rapt::KvShape shape = rapt::KvShape::kPagesKv;
  rapt::KvLayout layout = rapt::KvLayout::kNHD;
  uint64_t seed = 1;
  double custom_mask_density = 0.5;  // share of ones in a random custom mask
  // Tensor name -> file, relative to the step file: .npy, or FILE.safetensors:NAME.
  std::map<std::string, std::string> tensors;

  int64_t num_tokens() const;   // T
  int64_t num_kv_rows() const;  // sum of kv_len
};

// Throws rapt::Error(kIo) if the file cannot be read, kInvalidArgument naming the key for anything
// else: a missing or unknown key, a value of the wrong type, lengths that do not match. The spec is
// validated.
Step load_step(const std::string& path);

}  // namespace rapt_tool
