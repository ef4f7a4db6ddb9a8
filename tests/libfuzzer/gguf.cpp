// Models and tokenizers in GGUF, and llama2.c models: bytes that are none of these are refused.
#include "llm/model/gguf.hpp"
#include "llm/model/loaders.hpp"
#include "llm/tokenizer/loaders.hpp"
#include "rapt/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kName = "fuzz";
  const llm::FileView file{{reinterpret_cast<const std::byte*>(data), size}, kName};
  const llm::LoadOptions options = {.num_threads = 1};
  try {
    if (llm::GgufFile::recognises(file.bytes))
      llm::load_gguf(file, options);
    else
      llm::load_llama2c(file, options);
  } catch (const rapt::Error&) {
  }
  return 0;
}
