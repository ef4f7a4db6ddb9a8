// stories260K end to end: what llama2.c's own program prints, on every path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "llm/engine/engine.hpp"
#include "llm/tokenizer/tokenizer.hpp"
#include "support/source_dir.hpp"
#include "unit/llm_engine/levels.hpp"

namespace llm {
namespace {

const std::string kFolder = RAPT_SOURCE_DIR "/models/stories260K/";
const std::string kBin = kFolder + "stories260K.bin";

// greedy_256.txt is 257 tokens long, and llama2.c ends its output with a newline of its own.
constexpr int64_t kGreedyTokens = 257;

std::string greedy_text() {
  std::ifstream file(kFolder + "greedy_256.txt");
  std::stringstream text;
  text << file.rdbuf();
  return text.str().substr(0, text.str().size() - 1);
}

std::vector<int32_t> encode(const std::string& prompt) {
  static const auto tokenizer = load_tokenizer(kFolder + "tok512.bin");
  return tokenizer->encode(prompt, true);
}

std::string decode(const std::vector<int32_t>& tokens) {
  static const auto tokenizer = load_tokenizer(kFolder + "tok512.bin");
  return decode_all(*tokenizer, tokens);
}

GenerationRequest greedy(const std::string& prompt, int64_t max_tokens = kGreedyTokens) {
  return {.prompt = encode(prompt), .max_tokens = max_tokens, .sampling = {.temperature = 0}};
}

std::string run_alone(EngineOptions options, const std::string& path = kBin) {
  if (options.num_pages == 0) options.num_pages = 300;
  Engine engine(load_model(path), options);
  const GenerationRequest request = greedy("");
  return decode(engine.generate({&request, 1})[0].tokens);
}

TEST(Stories, greedy_text_is_llama2c_s_from_both_files) {
  ASSERT_GT(greedy_text().size(), 500u);
  EXPECT_EQ(run_alone({.num_threads = 1}), greedy_text());
  EXPECT_EQ(run_alone({.num_threads = 1}, kFolder + "stories260Ktok512.gguf"), greedy_text());
}

TEST(Stories, greedy_text_is_the_same_on_every_instruction_set_backend_and_thread_count) {
  for (const rapt::CpuIsa isa : test::levels())
    for (const char* backend : {"cpu", "reference"})
      for (const int32_t threads : {1, 2})
        EXPECT_EQ(run_alone({.num_threads = threads, .isa = isa, .backend = backend}),
                  greedy_text())
            << to_string(isa) << " " << backend << " " << threads;
}

TEST(Stories, greedy_text_is_the_same_for_any_page_size) {
  for (const int32_t page_size : {1, 16, 64})
    EXPECT_EQ(run_alone({.num_threads = 2, .page_size = page_size}), greedy_text()) << page_size;
}

const std::vector<std::string> kEightPrompts = {"",
                                                "Once upon a time",
                                                "Lily and Tom",
                                                "One day, a dog",
                                                "The sun was",
                                                "Lily and Tom went",
                                                "Tim had a",
                                                "Mom said"};

TEST(Stories, a_text_is_the_same_alone_and_among_eight) {
  std::vector<GenerationRequest> requests;
  for (const std::string& prompt : kEightPrompts) requests.push_back(greedy(prompt));
  requests[3].sampling = {.temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .seed = 11};
  requests[4].sampling = {.temperature = 1.2f, .min_p = 0.02f, .seed = 12};
  for (const int64_t tokens_per_step : {512, 13}) {
    Engine engine(load_model(kBin),
                  {.num_threads = 2, .num_pages = 200, .tokens_per_step = tokens_per_step});
    const auto together = engine.generate(requests);
    EXPECT_EQ(decode(together[0].tokens), greedy_text());
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(engine.generate({&requests[i], 1})[0].tokens, together[i].tokens) << i;
  }
}

TEST(Stories, a_seed_reproduces_its_text_and_another_gives_another) {
  Engine engine(load_model(kBin), {.num_threads = 2, .num_pages = 60});
  std::vector<GenerationRequest> requests(3, greedy("Once upon a time", 60));
  requests[0].sampling = {.temperature = 1, .seed = 7};
  requests[1].sampling = {.temperature = 1, .seed = 7};
  requests[2].sampling = {.temperature = 1, .seed = 8};
  const auto texts = engine.generate(requests);
  EXPECT_EQ(texts[0].tokens, texts[1].tokens);
  EXPECT_NE(texts[0].tokens, texts[2].tokens);
}

TEST(Stories, prompts_with_a_common_prefix_share_its_pages_and_say_the_same) {
  const std::string prefix =
      "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
      "park.";
  std::vector<GenerationRequest> requests = {greedy(prefix + " One day", 40),
                                             greedy(prefix + " Her mom", 40), greedy(prefix, 40)};
  Engine engine(load_model(kBin), {.num_threads = 2, .page_size = 4, .num_pages = 100});
  std::vector<Generation> alone;
  for (const GenerationRequest& request : requests)
    alone.push_back(engine.generate({&request, 1})[0]);
  const auto together = engine.generate(requests);
  const SchedulerStats& stats = engine.stats().scheduler;
  // Two of the three find the whole pages of the prefix, but for its last token's.
  const auto prefix_pages = static_cast<int64_t>(encode(prefix).size() - 1) / 4;
  EXPECT_GE(stats.most_pages_shared, prefix_pages);
  EXPECT_GE(stats.cached_tokens, 2 * 4 * prefix_pages);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
}

TEST(Stories, a_pool_too_small_for_all_gives_the_same_texts) {
  std::vector<GenerationRequest> requests;
  for (const std::string& prompt : kEightPrompts) requests.push_back(greedy(prompt, 60));
  Engine ample(load_model(kBin), {.num_threads = 2, .page_size = 4, .num_pages = 200});
  Engine scarce(load_model(kBin), {.num_threads = 2, .page_size = 4, .num_pages = 30});
  const auto expected = ample.generate(requests), got = scarce.generate(requests);
  EXPECT_EQ(ample.stats().scheduler.num_preemptions, 0);
  EXPECT_GT(scarce.stats().scheduler.num_preemptions, 0);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(got[i].tokens, expected[i].tokens) << i;
}

TEST(Stories, tokens_come_in_order_and_are_those_of_the_result) {
  Engine engine(load_model(kBin), {.num_threads = 2, .num_pages = 100});
  std::vector<GenerationRequest> requests = {greedy("", 30), greedy("Tim", 30)};
  std::vector<std::vector<int32_t>> streamed(2);
  const auto result = engine.generate(
      requests, [&](size_t request, int32_t token) { streamed[request].push_back(token); });
  EXPECT_EQ(streamed[0], result[0].tokens);
  EXPECT_EQ(streamed[1], result[1].tokens);
  EXPECT_EQ(engine.stats().scheduler.decode_tokens, 58);
}

TEST(Stories, an_end_token_ends_the_text_and_is_not_part_of_it) {
  Model model = load_model(kBin);
  const GenerationRequest request = greedy("", 30);
  std::vector<int32_t> free_run;
  {
    Engine engine(load_model(kBin), {.num_threads = 1, .num_pages = 10});
    free_run = engine.generate({&request, 1})[0].tokens;
  }
  model.config.eos_ids.push_back(free_run[4]);  // "," of "Once upon a time,"
  Engine engine(std::move(model), {.num_threads = 1, .num_pages = 10});
  const Generation generation = engine.generate({&request, 1})[0];
  EXPECT_TRUE(generation.stopped);
  EXPECT_EQ(generation.tokens, std::vector<int32_t>(free_run.begin(), free_run.begin() + 4));
}

TEST(Stories, sixteen_bit_caches_begin_the_same_text) {
  for (const rapt::KvFormat format : {rapt::KvFormat::kFloat16, rapt::KvFormat::kBFloat16}) {
    const std::string text = run_alone({.num_threads = 2, .kv_format = format});
    EXPECT_EQ(text.substr(0, 40), greedy_text().substr(0, 40)) << to_string(format);
  }
}

TEST(Stories, bad_requests_are_refused_before_anything_runs) {
  Engine engine(load_model(kBin), {.num_threads = 1, .num_pages = 40});
  const auto refused = [&](const GenerationRequest& request, const char* word) {
    try {
      engine.generate({&request, 1});
      ADD_FAILURE() << "accepted, expected a refusal naming " << word;
    } catch (const rapt::Error& error) {
      EXPECT_EQ(error.code(), rapt::ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), testing::HasSubstr(word));
    }
  };
  refused({.prompt = std::vector<int32_t>(513, 5), .max_tokens = 1}, "context is 512");
  refused({.prompt = {5, 512}, .max_tokens = 1}, "vocabulary is 512");
  refused({.prompt = {5, -1}, .max_tokens = 1}, "vocabulary is 512");
  refused({.prompt = {}, .max_tokens = 1}, "no tokens");
  refused({.prompt = {5}, .max_tokens = -1}, "max_tokens");
  refused({.prompt = {5}, .max_tokens = 1000}, "pages");
}

TEST(Stories, a_cache_past_all_memory_is_an_error_with_its_size) {
  try {
    Engine engine(load_model(kBin), {.page_size = 1 << 23, .num_pages = INT32_MAX});
    ADD_FAILURE() << "accepted";
  } catch (const rapt::Error& error) {
    EXPECT_EQ(error.code(), rapt::ErrorCode::kOutOfMemory);
    EXPECT_THAT(error.what(), testing::HasSubstr("2147483647 pages"));
  }
}

TEST(Stories, damaged_weights_are_an_error_not_a_text) {
  Model model = load_model(kBin);
  model.final_norm.f32()[3] = std::numeric_limits<float>::quiet_NaN();
  Engine engine(std::move(model), {.num_threads = 1, .num_pages = 10});
  const GenerationRequest request = greedy("", 5);
  EXPECT_THROW(engine.generate({&request, 1}), rapt::Error);
}

}  // namespace
}  // namespace llm
