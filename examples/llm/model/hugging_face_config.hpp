// Hugging Face's config.json.
#pragma once

#include "llm/model/mapped_file.hpp"
#include "llm/model/model.hpp"

namespace llm {

// kInvalidArgument for what is not a Llama model as it is computed here.
ModelConfig read_hugging_face_config(FileView file);

}  // namespace llm
