#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "llm/model/loaders.hpp"
#include "unit/llm_model/tiny_llama.hpp"

namespace llm {
namespace {

using nlohmann::json;
using rapt::ErrorCode;
using test::expect_error;
using test::TinyLlama;

const std::string kConfigName = "config.json", kShardName = "x.safetensors";

Model load(const std::string& config, const std::string& shard, const LoadOptions& options = {}) {
  return assemble_safetensors(test::view(config, kConfigName), {test::view(shard, kShardName)},
                              options);
}

std::string container(const std::string& header, const std::string& data) {
  std::string file;
  test::append(file, uint64_t{header.size()});
  return file + header + data;
}

std::string config_with(const json& changes, const TinyLlama& tiny = {}) {
  json config = json::parse(tiny.config_json());
  config.update(changes);
  return config.dump();
}

TEST(LoadSafetensors, reads_config_and_weights_of_each_dtype) {
  const TinyLlama tiny;
  for (const char* dtype : {"F32", "F16", "BF16"}) {
    const Model model = load(tiny.config_json(), safetensors(tiny.weights(), dtype));
    test::expect_weights(model, tiny);
    EXPECT_EQ(model.config.rope_style, RopeStyle::kHalves);
    EXPECT_EQ(model.config.head_dim, 8);
    EXPECT_EQ(model.config.bos_id, 1);
    EXPECT_EQ(model.config.eos_ids, (std::vector<int32_t>{2, 3}));
    EXPECT_DOUBLE_EQ(model.config.rope_frequencies[1], 0.1);
  }
  const Model kept =
      load(tiny.config_json(), safetensors(tiny.weights(), "BF16"), {.keep_format = true});
  EXPECT_EQ(kept.layers[0].wq.format(), ElementFormat::kBFloat16);
  EXPECT_EQ(kept.final_norm.format(), ElementFormat::kFloat32);
}

TEST(LoadSafetensors, unties_embeddings_and_ignores_a_tied_classifier) {
  TinyLlama tiny;
  tiny.tied = false;
  const std::string file = safetensors(tiny.weights(), "F32");
  test::expect_weights(load(tiny.config_json(), file), tiny);
  tiny.tied = true;
  test::expect_weights(load(tiny.config_json(), file), tiny);
}

TEST(LoadSafetensors, reads_a_file_a_directory_and_shards) {
  const TinyLlama tiny;
  const auto weights = tiny.weights();
  const test::TemporaryFolder folder;
  folder.write("config.json", tiny.config_json());
  expect_error(ErrorCode::kIo, {folder.path(), "model.safetensors.index.json"},
               [&] { load_model(folder.path()); });

  const std::vector<TinyLlama::Weight> first(weights.begin(), weights.begin() + 7),
      second(weights.begin() + 7, weights.end());
  json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", json::object()}};
  for (const auto& weight : first) index["weight_map"][weight.hugging_face] = "a.safetensors";
  for (const auto& weight : second) index["weight_map"][weight.hugging_face] = "b.safetensors";
  folder.write("model.safetensors.index.json", index.dump());
  folder.write("a.safetensors", safetensors(first, "F32"));
  expect_error(ErrorCode::kIo, {"b.safetensors", "cannot be opened"},
               [&] { load_model(folder.path()); });
  folder.write("b.safetensors", safetensors(second, "BF16"));
  test::expect_weights(load_model(folder.path()), tiny);

  const std::string single = folder.write("model.safetensors", safetensors(weights, "F16"));
  test::expect_weights(load_model(folder.path()), tiny);
  test::expect_weights(load_model(single), tiny);
}

TEST(LoadSafetensors, shards_stay_in_their_folder) {
  const test::TemporaryFolder folder;
  folder.write("config.json", TinyLlama{}.config_json());
  for (const char* shard : {"../x", "/etc/passwd", "..", "", "a/b"}) {
    const json index = {{"weight_map", {{"t", shard}}}};
    folder.write("model.safetensors.index.json", index.dump());
    expect_error(ErrorCode::kIo, {"shard of t", shard, "beside the index"},
                 [&] { load_model(folder.path()); });
  }
}

TEST(LoadSafetensors, refuses_a_tensor_in_two_shards) {
  const TinyLlama tiny;
  const std::string config = tiny.config_json(), shard = safetensors(tiny.weights(), "F32");
  expect_error(ErrorCode::kIo, {"is in another shard too"}, [&] {
    assemble_safetensors(test::view(config, kConfigName),
                         {test::view(shard, kShardName), test::view(shard, kShardName)}, {});
  });
}

TEST(LoadSafetensors, scales_rope_as_the_config_says) {
  const TinyLlama tiny;
  const std::string file = safetensors(tiny.weights(), "F32");
  const auto frequencies = [&](const json& changes) {
    return load(config_with(changes), file).config.rope_frequencies;
  };
  EXPECT_DOUBLE_EQ(frequencies({{"rope_theta", 16.0}})[2], 0.25);
  EXPECT_DOUBLE_EQ(frequencies({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}})[1], 0.05);
  EXPECT_DOUBLE_EQ(
      frequencies({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 16.0}}}})[2],
      0.25);
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 100}};
  const auto scaled = frequencies({{"rope_scaling", llama3}});
  EXPECT_DOUBLE_EQ(scaled[0], 1);         // 16 turns in 100 positions
  EXPECT_DOUBLE_EQ(scaled[2], 0.01 / 8);  // 0.16 turns
  expect_error(ErrorCode::kInvalidArgument, {kConfigName, "yarn"}, [&] {
    frequencies({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}}});
  });
  expect_error(ErrorCode::kIo, {"factor, which is missing"}, [&] {
    frequencies({{"rope_scaling", {{"rope_type", "linear"}}}});
  });
}

TEST(LoadSafetensors, refuses_configs_it_cannot_honour) {
  const std::string file = safetensors(TinyLlama{}.weights(), "F32");
  const auto expect = [&](ErrorCode code, const std::string& fragment, const json& changes) {
    expect_error(code, {kConfigName, fragment}, [&] { load(config_with(changes), file); });
  };
  constexpr ErrorCode kRefused = ErrorCode::kInvalidArgument, kIo = ErrorCode::kIo;
  expect(kRefused, "Qwen2ForCausalLM", {{"architectures", {"Qwen2ForCausalLM"}}});
  expect(kRefused, "mixtral", {{"model_type", "mixtral"}});
  expect(kRefused, "attention_bias is true", {{"attention_bias", true}});
  expect(kRefused, "mlp_bias is true", {{"mlp_bias", true}});
  expect(kRefused, "hidden_act is \"gelu\"", {{"hidden_act", "gelu"}});
  expect(kRefused, "quantization_config", {{"quantization_config", {{"bits", 4}}}});
  expect(kRefused, "sliding_window", {{"sliding_window", 4096}});
  expect(kIo, "hidden_size is missing", {{"hidden_size", nullptr}});
  expect(kIo, "hidden_size must be an integer", {{"hidden_size", "32"}});
  expect(kIo, "dim is -32", {{"hidden_size", -32}, {"head_dim", 8}});
  expect(kIo, "num_hidden_layers is 4000", {{"num_hidden_layers", 4000}});
  expect(kIo, "eos_token_id is 10", {{"eos_token_id", 10}});
  expect(kIo, "must be [11, 32]", {{"vocab_size", 11}});
  expect_error(kIo, {kConfigName, "must be an object"}, [&] { load("[1]", file); });
  expect_error(kIo, {kConfigName, "not valid JSON"}, [&] { load("", file); });
}

TEST(LoadSafetensors, refuses_headers_that_lie) {
  const std::string config = TinyLlama{}.config_json();
  const auto expect = [&](const std::string& file, const std::string& fragment) {
    expect_error(ErrorCode::kIo, {kShardName, fragment}, [&] { load(config, file); });
  };
  expect("", "truncated");
  expect(std::string(8, '\xff'), "header's length is 18446744073709551615");
  expect(container("{}", "").substr(0, 9), "the header");
  expect(container("[]", ""), "must be an object");
  expect(container("{\"a\": 1}", ""), "tensor a must be an object");
  expect(container(R"({"a": {"dtype": "F32", "shape": [1]}})", ""), "tensor a needs");
  const auto entry = [](const std::string& shape, const std::string& offsets) {
    return container(
        R"({"a": {"dtype": "F32", "shape": )" + shape + R"(, "data_offsets": )" + offsets + "}}",
        "12345678");
  };
  expect(entry("[-1]", "[0, 4]"), "[-1]");
  expect(entry("[1.5]", "[0, 4]"), "[1.5]");
  expect(entry("[18446744073709551615]", "[0, 4]"), "18446744073709551615");
  expect(entry("[1]", "[4, 0]"), "data_offsets [4, 0]");
  expect(entry("[3]", "[0, 12]"), "within the 8 bytes");
  expect(entry("[1]", "[-4, 0]"), "two numbers");
  expect(container(R"({"a": {}, "a": {}})", ""), "appears twice");
}

TEST(LoadSafetensors, names_the_tensor_that_is_wrong) {
  const TinyLlama tiny;
  const auto expect = [&](ErrorCode code, const std::string& fragment, const auto& change) {
    auto weights = tiny.weights();
    change(weights[4]);
    expect_error(code, {"self_attn.v_proj.weight", fragment},
                 [&] { load(tiny.config_json(), safetensors(weights, "F32")); });
  };
  expect(ErrorCode::kIo, "has the shape [32, 16], must be [16, 32]",
         [](TinyLlama::Weight& weight) { std::swap(weight.rows, weight.cols); });
  expect(ErrorCode::kIo, "has 2044 bytes, must have 2048",
         [](TinyLlama::Weight& weight) { weight.values.pop_back(); });
  expect(ErrorCode::kIo, "is missing",
         [](TinyLlama::Weight& weight) { weight.hugging_face = "other"; });

  auto weights = tiny.weights();
  weights.push_back({"", "model.layers.0.self_attn.q_proj.bias", 1, 4, true, {1, 2, 3, 4}});
  expect_error(ErrorCode::kInvalidArgument, {kShardName, "q_proj.bias", "no part"},
               [&] { load(tiny.config_json(), safetensors(weights, "F32")); });
  std::string other = safetensors(tiny.weights(), "F32");
  other.replace(other.find("\"F32\""), 5, "\"F64\"");
  expect_error(ErrorCode::kInvalidArgument, {kShardName, "dtype F64"},
               [&] { load(tiny.config_json(), other); });
}

}  // namespace
}  // namespace llm
