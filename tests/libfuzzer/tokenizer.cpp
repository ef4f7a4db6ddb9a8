// A tokenizer of any format and a text: the last 32 bytes, which the file has too.
#include <algorithm>

#include "llm/tokenizer/loaders.hpp"
#include "rapt/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kName = "fuzz";
  const llm::FileView file{{reinterpret_cast<const std::byte*>(data), size}, kName};
  const size_t text_bytes = std::min<size_t>(size, 32);
  const std::string_view text(reinterpret_cast<const char*>(data) + size - text_bytes, text_bytes);
  try {
    const auto tokenizer = llm::parse_tokenizer(file);
    llm::StreamDecoder stream(*tokenizer);
    for (const int32_t id : tokenizer->encode(text, tokenizer->adds_bos(), true)) stream.push(id);
    stream.finish();
  } catch (const rapt::Error&) {
  }
  return 0;
}
