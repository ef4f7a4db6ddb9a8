// The tokenizers' file formats, each behind load_tokenizer().
#pragma once

#include <memory>

#include "llm/model/mapped_file.hpp"
#include "llm/tokenizer/tokenizer.hpp"

namespace llm {

// Any of the formats below, recognised by content.
std::unique_ptr<Tokenizer> parse_tokenizer(FileView file);

std::unique_ptr<Tokenizer> load_gguf_tokenizer(FileView file);
std::unique_ptr<Tokenizer> load_llama2c_tokenizer(FileView file);
std::unique_ptr<Tokenizer> load_tokenizer_json(FileView file);

bool recognises_llama3_tokenizer(FileView file);
std::unique_ptr<Tokenizer> load_llama3_tokenizer(FileView file);

}  // namespace llm
