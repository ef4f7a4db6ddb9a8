#include "llm/model/gguf.hpp"
#include "llm/tokenizer/loaders.hpp"

namespace llm {

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  const MappedFile file(path);
  if (GgufFile::recognises(file.view().bytes)) return load_gguf_tokenizer(file.view());
  return load_llama2c_tokenizer(file.view());
}

}  // namespace llm
