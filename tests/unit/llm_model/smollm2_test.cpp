// A real model of 98 MB, which build.sh --tests installs from PyPI; skipped where it is not.
#include <gtest/gtest.h>

#include <cstdlib>

#include "llm/model/gguf.hpp"
#include "llm/model/model.hpp"
#include "unit/llm_model/file_writing.hpp"
#include "unit/llm_model/smollm2.hpp"

namespace llm {
namespace {

TEST(SmolLm2, loads_with_the_dimensions_it_is_known_for) {
  const std::string path = test::smollm2_path();
  ASSERT_FALSE(path.empty()) << test::kNoSmolLm2;
  const Model model = load_model(path);
  EXPECT_EQ(model.config.dim, 576);
  EXPECT_EQ(model.config.num_layers, 30);
  EXPECT_EQ(model.config.num_query_heads, 9);
  EXPECT_EQ(model.config.num_kv_heads, 3);
  EXPECT_EQ(model.config.head_dim, 64);
  EXPECT_EQ(model.config.vocab_size, 49152);
  EXPECT_EQ(model.config.rope_theta, 100000);
  EXPECT_TRUE(model.config.tied_embeddings);
  EXPECT_EQ(model.config.eos_ids, std::vector<int32_t>{2});
}

// The last row of a Q4_1 matrix, computed here from the file's bytes.
TEST(SmolLm2, dequantises_the_last_row_of_the_last_layer) {
  const std::string path = test::smollm2_path();
  ASSERT_FALSE(path.empty()) << test::kNoSmolLm2;
  const Model model = load_model(path, {.num_threads = 2});
  const MappedFile file(path);
  const GgufFile gguf(file.view());
  const std::string name = "blk.29.ffn_down.weight";  // [576, 1536]
  constexpr size_t kRowBlocks = 1536 / 32, kBlockBytes = 20;
  const auto bytes =
      gguf.tensor_bytes(name, gguf.tensors().at(name), 576 * kRowBlocks * kBlockBytes);
  const auto* row = reinterpret_cast<const uint8_t*>(bytes.data()) + 575 * kRowBlocks * kBlockBytes;
  const auto half = [&](const uint8_t* at) {
    _Float16 value;
    std::memcpy(&value, at, 2);
    return static_cast<float>(value);
  };
  const float* loaded = model.layers[29].w_down.f32() + 575 * 1536;
  for (size_t i = 0; i < 1536; ++i) {
    const uint8_t* block = row + i / 32 * kBlockBytes;
    const uint8_t byte = block[4 + i % 16];
    const int q = i % 32 < 16 ? byte & 15 : byte >> 4;
    ASSERT_EQ(loaded[i], half(block) * static_cast<float>(q) + half(block + 2)) << i;
  }
}

}  // namespace
}  // namespace llm
