#include "llm/model/loaders.hpp"

namespace llm {

Model load_model(const std::string& path, const LoadOptions& options) {
  const MappedFile file(path);
  return load_llama2c(file, options);
}

}  // namespace llm
