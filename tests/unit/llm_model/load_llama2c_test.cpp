#include <gtest/gtest.h>

#include "llm/model/loaders.hpp"
#include "support/source_dir.hpp"
#include "unit/llm_model/tiny_llama.hpp"

namespace llm {
namespace {

using rapt::ErrorCode;
using test::expect_error;
using test::TinyLlama;

const std::string kName = "x.bin";

Model load(const std::string& bytes, const LoadOptions& options = {}) {
  return load_llama2c(test::view(bytes, kName), options);
}

std::string with_header(std::string file, size_t field, int32_t value) {
  std::memcpy(file.data() + 4 * field, &value, 4);
  return file;
}

TEST(LoadLlama2c, reads_config_and_weights) {
  const TinyLlama tiny;
  const Model model = load(tiny.llama2c());
  test::expect_weights(model, tiny);
  EXPECT_EQ(model.config.dim, 32);
  EXPECT_EQ(model.config.hidden_dim, 64);
  EXPECT_EQ(model.config.num_layers, 2);
  EXPECT_EQ(model.config.num_query_heads, 4);
  EXPECT_EQ(model.config.num_kv_heads, 2);
  EXPECT_EQ(model.config.head_dim, 8);
  EXPECT_EQ(model.config.vocab_size, 10);
  EXPECT_EQ(model.config.context_length, 16);
  EXPECT_EQ(model.config.rope_style, RopeStyle::kNeighbouringPairs);
  EXPECT_EQ(model.config.bos_id, 1);
  EXPECT_EQ(&model.classifier(), &model.token_embedding);
}

TEST(LoadLlama2c, a_negative_vocabulary_has_its_own_classifier) {
  TinyLlama tiny;
  tiny.tied = false;
  const Model model = load(tiny.llama2c());
  test::expect_weights(model, tiny);
  EXPECT_EQ(&model.classifier(), &model.output);
}

TEST(LoadLlama2c, gives_the_same_with_any_number_of_threads) {
  TinyLlama tiny;
  tiny.vocab = 20000;  // several strips
  for (const int32_t num_threads : {1, 2, 5})
    test::expect_weights(load(tiny.llama2c(), {.num_threads = num_threads}), tiny);
}

TEST(LoadLlama2c, every_other_length_is_an_error) {
  const std::string whole = TinyLlama{}.llama2c();
  for (size_t length = 0; length < whole.size(); length += length < 100 ? 1 : 997)
    EXPECT_THROW(load(whole.substr(0, length)), rapt::Error) << length;
  EXPECT_THROW(load(whole.substr(0, whole.size() - 1)), rapt::Error);
  expect_error(ErrorCode::kIo, {kName, "4 bytes follow"}, [&] { load(whole + "1234"); });
}

TEST(LoadLlama2c, refuses_headers_that_lie) {
  const std::string whole = TinyLlama{}.llama2c();
  expect_error(ErrorCode::kIo, {"dim is 0"}, [&] { load(with_header(whole, 0, 0)); });
  expect_error(ErrorCode::kIo, {"dim is -32"}, [&] { load(with_header(whole, 0, -32)); });
  expect_error(ErrorCode::kIo, {"layers don't fit"}, [&] { load(with_header(whole, 2, 1 << 20)); });
  expect_error(ErrorCode::kIo, {"num_layers is 2147483647"},
               [&] { load(with_header(whole, 2, INT32_MAX)); });
  expect_error(ErrorCode::kIo, {"query heads"}, [&] { load(with_header(whole, 3, 0)); });
  expect_error(ErrorCode::kIo, {"query heads"}, [&] { load(with_header(whole, 3, 5)); });
  expect_error(ErrorCode::kIo, {"multiple of num_kv_heads, 3"},
               [&] { load(with_header(whole, 4, 3)); });
  expect_error(ErrorCode::kIo, {"must be even"}, [&] { load(with_header(whole, 3, 32)); });
  expect_error(ErrorCode::kIo, {"vocab_size is 2147483648"},
               [&] { load(with_header(whole, 5, INT32_MIN)); });
  expect_error(ErrorCode::kIo, {"truncated"}, [&] { load(with_header(whole, 5, 1 << 20)); });
}

TEST(LoadLlama2c, stories260k_is_the_same_as_its_gguf) {
  const std::string folder = RAPT_SOURCE_DIR "/models/stories260K/";
  const Model a = load_model(folder + "stories260K.bin");
  const Model b = load_model(folder + "stories260Ktok512.gguf");
  EXPECT_EQ(a.config.head_dim, 8);
  EXPECT_EQ(a.config.context_length, 512);
  EXPECT_EQ(b.config.context_length, 128);
  EXPECT_EQ(a.config.rope_frequencies, b.config.rope_frequencies);
  EXPECT_EQ(a.config.rms_norm_eps, b.config.rms_norm_eps);
  EXPECT_EQ(b.config.eos_ids, std::vector<int32_t>{2});
  const auto expect_same = [](const Matrix& x, const Matrix& y) {
    ASSERT_EQ(x.rows(), y.rows());
    ASSERT_EQ(x.cols(), y.cols());
    EXPECT_EQ(std::memcmp(x.data(), y.data(), x.bytes()), 0);
  };
  expect_same(a.token_embedding, b.token_embedding);
  expect_same(a.classifier(), b.classifier());
  expect_same(a.final_norm, b.final_norm);
  ASSERT_EQ(a.layers.size(), 5u);
  ASSERT_EQ(b.layers.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    for (Matrix LayerWeights::*member :
         {&LayerWeights::attention_norm, &LayerWeights::wq, &LayerWeights::wk, &LayerWeights::wv,
          &LayerWeights::wo, &LayerWeights::ffn_norm, &LayerWeights::w_gate, &LayerWeights::w_up,
          &LayerWeights::w_down})
      expect_same(a.layers[i].*member, b.layers[i].*member);
  }
}

}  // namespace
}  // namespace llm
