// Which generation of FlashAttention runs a problem: a chain of up- and downgrades.
#pragma once

#include <string>
#include <vector>

#include "select/request.hpp"

namespace rapt {

struct FlashAttentionVersion {
  int32_t version = 2;
  std::vector<std::string> trail;  // one line for each step that set or changed it
};

// For a CUDA device. The chain decides by architecture and options alone; whether the generation it
// ends at can do the rest is for the checks of that generation's row.
FlashAttentionVersion flash_attention_version(const Request& request);

// A generation that has kernels for the compute capability.
bool has_flash_attention(int32_t version, int32_t compute_capability);

}  // namespace rapt
