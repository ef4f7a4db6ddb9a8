#include "llm/model/gguf.hpp"
#include "llm/model/loaders.hpp"

namespace llm {

Model load_model(const std::string& path, const LoadOptions& options) {
  const MappedFile file(path);
  if (GgufFile::recognises(file.view().bytes)) return load_gguf(file.view(), options);
  return load_llama2c(file.view(), options);
}

}  // namespace llm
