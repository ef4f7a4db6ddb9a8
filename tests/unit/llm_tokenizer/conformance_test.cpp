// Real vocabularies give the ids that other implementations give.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "llm/tokenizer/tokenizer.hpp"
#include "support/source_dir.hpp"
#include "unit/llm_model/smollm2.hpp"
#include "unit/llm_tokenizer/vocab_cases.hpp"

namespace llm {
namespace {

void expect_recorded_ids(const Tokenizer& tokenizer, const std::string& name) {
  for (const test::VocabCase& recorded : test::vocab_cases(name)) {
    const std::vector<int32_t> ids = tokenizer.encode(recorded.text, /*add_bos=*/false);
    EXPECT_EQ(ids, recorded.ids) << "\"" << recorded.text << "\"";
    EXPECT_EQ(decode_all(tokenizer, ids), recorded.text);
  }
}

TEST(Conformance, llama_sentencepiece_gives_the_recorded_ids) {
  const auto tokenizer = load_tokenizer(test::vocab_file("llama-spm"));
  EXPECT_EQ(tokenizer->vocab_size(), 32000);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_ids(), std::vector<int32_t>{2});
  EXPECT_TRUE(tokenizer->adds_bos());
  expect_recorded_ids(*tokenizer, "llama-spm");
}

TEST(Conformance, gpt2_gives_the_recorded_ids) {
  const auto tokenizer = load_tokenizer(test::vocab_file("gpt-2"));
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_FALSE(tokenizer->adds_bos());
  expect_recorded_ids(*tokenizer, "gpt-2");
}

// The vocabulary is Meta's and not ours to ship: PyPI's llama-models 0.3.0 has it.
TEST(Conformance, llama3_gives_the_recorded_ids) {
  const char* named = std::getenv("RAPT_LLAMA3_TOKENIZER");
  const std::string path = named != nullptr ? named
                                            : RAPT_SOURCE_DIR
                               "/build/models/llama_models/llama3/tokenizer.model";
  ASSERT_TRUE(std::filesystem::exists(path))
      << "no Llama 3 tokenizer: run build.sh --tests, or name the file in RAPT_LLAMA3_TOKENIZER";
  const auto tokenizer = load_tokenizer(path);
  EXPECT_EQ(tokenizer->vocab_size(), 128256);
  expect_recorded_ids(*tokenizer, "llama-bpe");
  EXPECT_EQ(tokenizer->encode("<|begin_of_text|><|eot_id|>", false, /*parse_special=*/true),
            (std::vector<int32_t>{128000, 128009}));
}

TEST(Conformance, stories_tokenizers_agree) {
  const std::string folder = RAPT_SOURCE_DIR "/models/stories260K/";
  const std::vector<int32_t> once_upon_a_time = {1, 403, 407, 261, 378};
  const std::string story = test::read_file(folder + "greedy_256.txt");
  std::vector<std::vector<int32_t>> stories;
  for (const char* name : {"tok512.bin", "stories260Ktok512.gguf"}) {
    const auto tokenizer = load_tokenizer(folder + name);
    EXPECT_EQ(tokenizer->encode("Once upon a time", true), once_upon_a_time);
    EXPECT_EQ(decode_all(*tokenizer, once_upon_a_time), "Once upon a time");
    stories.push_back(tokenizer->encode(story, true));
    EXPECT_EQ(decode_all(*tokenizer, stories.back()), story);
  }
  EXPECT_EQ(stories[0], stories[1]);
  EXPECT_GT(stories[0].size(), 200u);
}

TEST(Conformance, smollm2_gives_the_recorded_ids) {
  const std::string path = test::smollm2_path();
  ASSERT_FALSE(path.empty()) << test::kNoSmolLm2;
  const auto tokenizer = load_tokenizer(path);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->encode("The capital of France is", tokenizer->adds_bos()),
            (std::vector<int32_t>{504, 3575, 282, 4649, 314}));
  EXPECT_EQ(tokenizer->encode("def fibonacci(n):", tokenizer->adds_bos()),
            (std::vector<int32_t>{1604, 3987, 46477, 24, 94, 727}));
  const std::vector<int32_t> answer = {7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34,
                                       32,   33, 40,  29,  32,  33,   29,  34, 34};
  EXPECT_EQ(decode_all(*tokenizer, answer), " Paris.\n\nThe answer is: 2018-01-22");
  EXPECT_EQ(tokenizer->encode("<|im_start|>user", false, true).front(), 1);
  EXPECT_NE(tokenizer->encode("<|im_start|>user", false, false).front(), 1);
}

}  // namespace
}  // namespace llm
