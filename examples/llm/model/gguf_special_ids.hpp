// The special token ids in a GGUF file's metadata.
#pragma once

#include <cstdint>
#include <vector>

#include "llm/model/gguf.hpp"

namespace llm {

struct SpecialIds {
  int32_t bos = -1;  // -1 = none
  int32_t unknown = -1;
  std::vector<int32_t> eos;  // end of sequence, of turn and of message, each once
};

// Checks each against the vocabulary's size.
SpecialIds read_special_ids(const GgufFile& gguf, int64_t vocab_size);

}  // namespace llm
