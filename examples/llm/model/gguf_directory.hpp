// Directories that hold a model in GGUF.
#pragma once

#include <optional>
#include <string>

namespace llm {

// The one .gguf file of a directory without config.json, which would make it Hugging Face's;
// nothing if it has no such file, or if `path` is no directory. Several .gguf files are an error.
std::optional<std::string> gguf_file_of(const std::string& path);

}  // namespace llm
