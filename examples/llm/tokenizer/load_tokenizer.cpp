#include <filesystem>

#include "llm/model/failure.hpp"
#include "llm/model/gguf.hpp"
#include "llm/model/gguf_directory.hpp"
#include "llm/tokenizer/loaders.hpp"

namespace llm {
namespace {

std::string file_of(const std::string& path) {
  if (const auto gguf = gguf_file_of(path)) return *gguf;
  std::error_code no_such_file;
  if (!std::filesystem::is_directory(path, no_such_file)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const std::filesystem::path file = std::filesystem::path(path) / name;
    if (std::filesystem::exists(file, no_such_file)) return file.string();
  }
  fail_io(path,
          ": holds neither tokenizer.json nor tokenizer.model, as a Hugging Face directory does, "
          "nor one "
          ".gguf file: name the file of the model or of the tokenizer");
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  const MappedFile file(file_of(path));
  return parse_tokenizer(file.view());
}

std::unique_ptr<Tokenizer> parse_tokenizer(FileView file) {
  if (GgufFile::recognises(file.bytes)) return load_gguf_tokenizer(file);
  if (!file.bytes.empty() && file.bytes[0] == std::byte{'{'}) return load_tokenizer_json(file);
  if (recognises_llama3_tokenizer(file)) return load_llama3_tokenizer(file);
  return load_llama2c_tokenizer(file);
}

}  // namespace llm
