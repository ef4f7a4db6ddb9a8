// config.json and a safetensors file, divided by the first zero byte.
#include <algorithm>

#include "llm/model/loaders.hpp"
#include "rapt/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kConfig = "config.json", kShard = "fuzz.safetensors";
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto border = std::find(bytes.begin(), bytes.end(), std::byte{0}) - bytes.begin();
  const auto shard = bytes.subspan(std::min<size_t>(border + 1, size));
  try {
    llm::assemble_safetensors({bytes.first(border), kConfig}, {{shard, kShard}},
                              {.num_threads = 1});
  } catch (const rapt::Error&) {
  }
  return 0;
}
