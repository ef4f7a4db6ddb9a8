#include <filesystem>

#include "llm/model/failure.hpp"
#include "llm/model/gguf.hpp"
#include "llm/model/gguf_directory.hpp"
#include "llm/model/loaders.hpp"
#include "llm/model/safetensors.hpp"

namespace llm {
namespace {

// llama2.c's later formats begin with this number ("ak42").
constexpr uint32_t kLlama2cMagic = 0x616b3432;

void refuse_later_llama2c(FileView file) {
  uint32_t magic = 0;
  if (file.bytes.size() >= sizeof(magic)) std::memcpy(&magic, file.bytes.data(), sizeof(magic));
  check_supported(magic != kLlama2cMagic, file.path,
                  ": is a llama2.c file of version 1 or later; version 0 is read here");
}

}  // namespace

Model load_model(const std::string& path, const LoadOptions& options) {
  if (const auto gguf = gguf_file_of(path)) return load_model(*gguf, options);
  std::error_code no_such_file;
  if (std::filesystem::is_directory(path, no_such_file))
    return load_hugging_face_directory(path, options);
  const MappedFile file(path);
  if (GgufFile::recognises(file.view().bytes)) return load_gguf(file.view(), options);
  if (SafetensorsFile::recognises(file.view().bytes)) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return load_safetensors(folder, {path}, options);
  }
  refuse_later_llama2c(file.view());
  return load_llama2c(file.view(), options);
}

}  // namespace llm
