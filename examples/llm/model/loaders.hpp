// The models' file formats, each behind load_model(). Those that take FileViews touch no file.
#pragma once

#include <string>
#include <vector>

#include "llm/model/mapped_file.hpp"
#include "llm/model/model.hpp"

namespace llm {

Model load_gguf(FileView file, const LoadOptions& options);
Model load_llama2c(FileView file, const LoadOptions& options);

// `directory` holds config.json; the shards are complete paths.
Model load_safetensors(const std::string& directory, const std::vector<std::string>& shards,
                       const LoadOptions& options);
Model load_hugging_face_directory(const std::string& directory, const LoadOptions& options);
Model assemble_safetensors(FileView config, const std::vector<FileView>& shards,
                           const LoadOptions& options);

}  // namespace llm
