#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "llm/model/gguf.hpp"
#include "llm/tokenizer/loaders.hpp"
#include "unit/llm_tokenizer/vocab_cases.hpp"

namespace llm {
namespace {

using nlohmann::json;
using rapt::ErrorCode;
using test::expect_error;
using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> load(const json& root) {
  const std::string text = root.dump(), name = "tokenizer.json";
  return load_tokenizer_json(test::view(text, name));
}

json small() {
  return {{"added_tokens",
           {{{"id", 5}, {"content", "<s>"}, {"special", true}},
            {{"id", 6}, {"content", "::"}, {"special", false}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"\u0120", 2}, {"ab", 3}, {"\u0120ab", 4}}},
            {"merges", {"a b", "\u0120 ab"}}}}};
}

TEST(TokenizerJson, reads_vocabulary_merges_and_added_tokens) {
  const auto tokenizer = load(small());
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_EQ(tokenizer->encode("ab ab::b", false), (Ids{3, 4, 6, 1}));
  EXPECT_EQ(tokenizer->encode("<s>a", false, /*parse_special=*/true), (Ids{5, 0}));
  EXPECT_EQ(decode_all(*tokenizer, {5, 3, 4, 6}), "ab ab::");
  EXPECT_FALSE(tokenizer->adds_bos());
}

TEST(TokenizerJson, merges_may_be_pairs_and_the_template_names_bos) {
  json root = small();
  root["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"\u0120", "ab"})});
  root["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single",
          {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}}}}}}};
  const auto tokenizer = load(root);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->bos_id(), 5);
  EXPECT_EQ(tokenizer->encode(" ab", true), (Ids{5, 4}));
}

TEST(TokenizerJson, splits_by_digits_and_by_its_own_pattern) {
  json root = small();
  root["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Digits"}, {"individual_digits", true}},
        {{"type", "Split"},
         {"pattern", {{"Regex", "b"}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  EXPECT_EQ(load(root)->encode("ab", false), (Ids{0, 1}));  // cut before b, so no merge
}

TEST(TokenizerJson, gpt2_as_json_gives_the_recorded_ids) {
  const MappedFile file(test::vocab_file("gpt-2"));
  const GgufFile gguf(file.view());
  json root = small();
  root["added_tokens"] = json::array();
  root["model"]["vocab"] = json::object();
  root["model"]["merges"] = json::array();
  int32_t id = 0;
  const auto tokens = gguf.texts("tokenizer.ggml.tokens"),
             merges = gguf.texts("tokenizer.ggml.merges");
  for (const std::string_view token : tokens.value())
    root["model"]["vocab"][std::string(token)] = id++;
  for (const std::string_view merge : merges.value())
    root["model"]["merges"].push_back(std::string(merge));
  const auto tokenizer = load(root);
  for (const test::VocabCase& recorded : test::vocab_cases("gpt-2"))
    EXPECT_EQ(tokenizer->encode(recorded.text, false), recorded.ids) << recorded.text;
}

TEST(TokenizerJson, is_found_in_its_directory) {
  const test::TemporaryFolder folder;
  expect_error(ErrorCode::kIo, {folder.path(), "tokenizer.json"},
               [&] { load_tokenizer(folder.path()); });
  folder.write("tokenizer.json", small().dump());
  EXPECT_EQ(load_tokenizer(folder.path())->vocab_size(), 7);
}

TEST(TokenizerJson, refuses_what_it_cannot_honour) {
  const auto expect = [](ErrorCode code, const std::string& fragment, const auto& change) {
    json root = small();
    change(root);
    expect_error(code, {"tokenizer.json", fragment}, [&] { load(root); });
  };
  constexpr ErrorCode kRefused = ErrorCode::kInvalidArgument, kIo = ErrorCode::kIo;
  expect(kRefused, "\"Unigram\"", [](json& r) { r["model"]["type"] = "Unigram"; });
  expect(kRefused, "byte_fallback", [](json& r) { r["model"]["byte_fallback"] = true; });
  expect(kRefused, "normalizer", [](json& r) { r["normalizer"] = {{"type", "NFC"}}; });
  expect(kRefused, "adds a space", [](json& r) { r["pre_tokenizer"]["add_prefix_space"] = true; });
  expect(kRefused, "\"Metaspace\"", [](json& r) { r["pre_tokenizer"]["type"] = "Metaspace"; });
  expect(kRefused, "not ByteLevel", [](json& r) { r["pre_tokenizer"] = nullptr; });
  expect(kRefused, "does not compile", [](json& r) {
    r["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", "(("}}}, {"behavior", "Isolated"}};
    r["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {r["pre_tokenizer"], {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
  });
  expect(kIo, "\"ab\", which is missing", [](json& r) { r["model"]["vocab"].erase("ab"); });
  expect(kIo, "has the id 99999999999", [](json& r) { r["model"]["vocab"]["b"] = 99999999999; });
  expect(kIo, "has the id -1", [](json& r) { r["model"]["vocab"]["b"] = -1; });
  expect(kIo, "two tokens", [](json& r) { r["model"]["vocab"]["b"] = 0; });
  expect(kIo, "merges[0]", [](json& r) { r["model"]["merges"] = {"ab"}; });
  expect(kIo, "vocab must be an object", [](json& r) { r["model"]["vocab"] = {1, 2}; });
}

}  // namespace
}  // namespace llm
