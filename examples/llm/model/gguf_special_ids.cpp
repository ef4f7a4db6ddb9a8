#include "llm/model/gguf_special_ids.hpp"

#include <algorithm>
#include <string>

namespace llm {

SpecialIds read_special_ids(const GgufFile& gguf, int64_t vocab_size) {
  // SentencePiece models whose file is silent have these ids.
  const bool sentencepiece = gguf.text("tokenizer.ggml.model").value_or("") == "llama";
  const auto read = [&](const char* name, int32_t silent) {
    constexpr int64_t kNone = 0xffffffff;  // -1 in the files' uint32
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    const auto value = gguf.integer(key);
    if (!value) return silent < vocab_size ? silent : -1;
    if (*value == kNone || *value == -1) return -1;
    check_io(*value >= 0 && *value < vocab_size, gguf.path(), ": ", key, " is ", *value,
             ", must be in [0, ", vocab_size, ")");
    return static_cast<int32_t>(*value);
  };
  SpecialIds ids;
  ids.bos = read("bos", sentencepiece ? 1 : -1);
  ids.unknown = read("unknown", sentencepiece ? 0 : -1);
  for (const int32_t id : {read("eos", sentencepiece ? 2 : -1), read("eot", -1), read("eom", -1)}) {
    if (id >= 0 && std::find(ids.eos.begin(), ids.eos.end(), id) == ids.eos.end())
      ids.eos.push_back(id);
  }
  return ids;
}

}  // namespace llm
