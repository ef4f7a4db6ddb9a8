// The models' file formats, each behind load_model().
#pragma once

#include <string>

#include "llm/model/mapped_file.hpp"
#include "llm/model/model.hpp"

namespace llm {

Model load_gguf(FileView file, const LoadOptions& options);
Model load_llama2c(FileView file, const LoadOptions& options);

}  // namespace llm
