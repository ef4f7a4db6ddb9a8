#include "llm/model/failure.hpp"
#include "llm/tokenizer/loaders.hpp"

namespace llm {

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  const MappedFile file(path);
  return load_llama2c_tokenizer(file);
}

}  // namespace llm
