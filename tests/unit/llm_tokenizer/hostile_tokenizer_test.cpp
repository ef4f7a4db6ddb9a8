// Tokenizer files that lie, lack something or are damaged.
#include <gtest/gtest.h>

#include <random>

#include "llm/tokenizer/loaders.hpp"
#include "support/source_dir.hpp"
#include "unit/llm_model/file_writing.hpp"

namespace llm {
namespace {

using rapt::ErrorCode;
using test::expect_error;
using test::GgufWriter;

const std::string kName = "x.gguf";

std::unique_ptr<Tokenizer> load(const std::string& bytes) {
  return load_gguf_tokenizer(test::view(bytes, kName));
}

TEST(HostileTokenizer, gguf_names_the_key_that_is_wrong) {
  const auto expect = [](ErrorCode code, const std::string& fragment, const GgufWriter& writer) {
    expect_error(code, {kName, fragment}, [&] { load(writer.finish()); });
  };
  const auto spm = [] { return GgufWriter().text("tokenizer.ggml.model", "llama"); };
  const auto gpt2 = [] { return GgufWriter().text("tokenizer.ggml.model", "gpt2"); };
  const std::vector<std::string> tokens = {"a", "b"};
  constexpr ErrorCode kIo = ErrorCode::kIo;
  expect(kIo, "the file has no tokenizer", GgufWriter());
  expect(ErrorCode::kInvalidArgument, "\"bert\"",
         GgufWriter().text("tokenizer.ggml.model", "bert"));
  expect(kIo, "tokens is missing", spm());
  expect(kIo, "scores is missing", spm().texts("tokenizer.ggml.tokens", tokens));
  expect(kIo, "scores has 1 elements for 2 tokens",
         spm().texts("tokenizer.ggml.tokens", tokens).reals("tokenizer.ggml.scores", {1}));
  expect(kIo, "no tokens",
         spm().texts("tokenizer.ggml.tokens", {}).reals("tokenizer.ggml.scores", {}));
  expect(kIo, "must be an array of strings",
         spm().integers("tokenizer.ggml.tokens", {1}).reals("tokenizer.ggml.scores", {1}));
  expect(
      kIo, "token_type[1] is 9",
      gpt2().texts("tokenizer.ggml.tokens", tokens).integers("tokenizer.ggml.token_type", {1, 9}));
  expect(
      kIo, "token 1 is of the byte kind but spelled \"b\"",
      gpt2().texts("tokenizer.ggml.tokens", tokens).integers("tokenizer.ggml.token_type", {1, 6}));
  expect(kIo, "bos_token_id is 2",
         gpt2().texts("tokenizer.ggml.tokens", tokens).integer("tokenizer.ggml.bos_token_id", 2));
  expect(kIo, "merges is missing", gpt2().texts("tokenizer.ggml.tokens", tokens));
  expect(kIo, "merges[0] is \"ab\"",
         gpt2().texts("tokenizer.ggml.tokens", tokens).texts("tokenizer.ggml.merges", {"ab"}));
  expect(kIo, "needs the token \"ab\"",
         gpt2().texts("tokenizer.ggml.tokens", tokens).texts("tokenizer.ggml.merges", {"a b"}));
  expect(ErrorCode::kInvalidArgument, "tokenizer.ggml.pre is \"other\"",
         gpt2()
             .texts("tokenizer.ggml.tokens", tokens)
             .texts("tokenizer.ggml.merges", {})
             .text("tokenizer.ggml.pre", "other"));
}

TEST(HostileTokenizer, llama2c_lengths_that_lie_are_errors) {
  const std::string name = "x.bin";
  const auto load_bytes = [&](const std::string& bytes) {
    load_llama2c_tokenizer(test::view(bytes, name));
  };
  const std::string whole = test::read_file(RAPT_SOURCE_DIR "/models/stories260K/tok512.bin");
  // Cuts between tokens leave a shorter vocabulary, which is the model's to notice; others fail.
  int shorter = 0;
  for (size_t length = 0; length < whole.size(); ++length) {
    try {
      load_bytes(whole.substr(0, length));
      ++shorter;
    } catch (const rapt::Error&) {
    }
  }
  EXPECT_EQ(shorter, 512 - 3);
  std::string negative = whole, huge = whole;
  const int32_t below = -1, above = INT32_MAX;
  std::memcpy(negative.data() + 8, &below, 4);
  std::memcpy(huge.data() + 8, &above, 4);
  expect_error(ErrorCode::kIo, {name, "token 0 has the length -1"}, [&] { load_bytes(negative); });
  expect_error(ErrorCode::kIo, {name, "2147483647 bytes"}, [&] { load_bytes(huge); });
  expect_error(ErrorCode::kIo, {name, "max_token_length is 0"},
               [&] { load_bytes(std::string(100, '\0')); });
}

TEST(HostileTokenizer, llama3_files_are_read_line_by_line) {
  const std::string name = "tokenizer.model";
  const auto load_text = [&](const std::string& text) {
    load_llama3_tokenizer(test::view(text, name));
  };
  expect_error(ErrorCode::kInvalidArgument, {name, "has 2 tokens", "128000"},
               [&] { load_text("IQ== 0\nIg== 1\n"); });
  for (const char* line : {"IQ== 2\n", "IQ=\n", "I?== 1\n", " 1\n", "IQ== x\n", "IQ== 1x\n", "\n"})
    expect_error(ErrorCode::kIo, {name, "line 2"},
                 [&] { load_text(std::string("IQ== 0\n") + line); });
}

// Damaged files load or are refused, and what loads encodes and decodes.
template <typename Load>
void damage_and_use(const std::string& file, size_t header_bytes, int rounds,
                    const Load& load_file) {
  std::mt19937_64 random(41);
  for (int i = 0; i < rounds; ++i) {
    std::string damaged = file;
    const uint64_t count = 1 + random() % 4;
    for (uint64_t j = 0; j < count; ++j) {
      const size_t place = random() % (random() % 2 ? header_bytes : file.size());
      damaged[place] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
    }
    if (random() % 8 == 0) damaged.resize(random() % damaged.size());
    try {
      const std::unique_ptr<Tokenizer> tokenizer = load_file(damaged);
      const auto ids =
          tokenizer->encode("Once upon é🦙 \xff <s> 12", tokenizer->adds_bos(), true);
      StreamDecoder stream(*tokenizer);
      for (const int32_t id : ids) stream.push(id);
      stream.finish();
    } catch (const rapt::Error&) {
    }
  }
}

TEST(HostileTokenizer, damaged_gguf_is_refused_or_works) {
  const std::string file =
      test::read_file(RAPT_SOURCE_DIR "/models/stories260K/stories260Ktok512.gguf")
          .substr(0, 16000);
  damage_and_use(file, 15000, 3000, load);
}

TEST(HostileTokenizer, damaged_llama2c_is_refused_or_works) {
  const std::string file = test::read_file(RAPT_SOURCE_DIR "/models/stories260K/tok512.bin");
  const std::string name = "x.bin";
  damage_and_use(file, 100, 3000, [&](const std::string& damaged) {
    return load_llama2c_tokenizer(test::view(damaged, name));
  });
}

TEST(HostileTokenizer, damaged_json_is_refused_or_works) {
  const std::string name = "tokenizer.json";
  const std::string file = R"json({
    "added_tokens": [{"id": 3, "content": "<s>", "special": true}], "normalizer": null,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "[^a]+|(?i:x)"}, "behavior": "Isolated"},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "model": {"type": "BPE", "vocab": {"O": 0, "n": 1, "On": 2}, "merges": ["O n"]}})json";
  damage_and_use(file, file.size(), 10000, [&](const std::string& damaged) {
    return load_tokenizer_json(test::view(damaged, name));
  });
}

}  // namespace
}  // namespace llm
