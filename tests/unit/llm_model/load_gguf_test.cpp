#include <gtest/gtest.h>

#include <cmath>

#include "llm/model/loaders.hpp"
#include "unit/llm_model/tiny_llama.hpp"

namespace llm {
namespace {

using rapt::ErrorCode;
using test::expect_error;
using test::GgufWriter;
using test::TinyLlama;

const std::string kName = "x.gguf";

Model load(const std::string& bytes, const LoadOptions& options = {}) {
  return load_gguf(test::view(bytes, kName), options);
}

struct Stored {
  uint32_t type;
  std::string bytes;
};

// The tiny model's file with `change` applied to each tensor's stored form.
template <typename Change>
std::string gguf_with(const TinyLlama& tiny, GgufWriter writer, const Change& change) {
  for (const TinyLlama::Weight& weight : tiny.weights()) {
    std::vector<uint64_t> shape = {static_cast<uint64_t>(weight.cols)};
    if (!weight.is_norm) shape.push_back(weight.rows);
    Stored stored = {0, test::bytes_of(weight.values)};
    change(weight, stored);
    writer.tensor(weight.gguf, shape, stored.type, stored.bytes);
  }
  return writer.finish();
}

std::string gguf_with(const TinyLlama& tiny, const GgufWriter& writer) {
  return gguf_with(tiny, writer, [](const TinyLlama::Weight&, Stored&) {});
}

TEST(LoadGguf, reads_config_and_weights) {
  for (const bool tied : {true, false}) {
    TinyLlama tiny;
    tiny.tied = tied;
    const Model model = load(tiny.gguf());
    test::expect_weights(model, tiny);
    EXPECT_EQ(model.config.tied_embeddings, tied);
    EXPECT_EQ(model.config.vocab_size, 10);
    EXPECT_EQ(model.config.head_dim, 8);
    EXPECT_EQ(model.config.rope_style, RopeStyle::kNeighbouringPairs);
    EXPECT_FLOAT_EQ(model.config.rms_norm_eps, 1e-5f);
    EXPECT_DOUBLE_EQ(model.config.rope_frequencies[1], 0.1);
    EXPECT_EQ(model.config.bos_id, -1);
  }
}

TEST(LoadGguf, reads_16_bit_tensors_as_fp32_or_keeps_them) {
  const TinyLlama tiny;
  for (const auto& [type, format] :
       {std::pair{1u, ElementFormat::kFloat16}, std::pair{30u, ElementFormat::kBFloat16}}) {
    const auto pack = [&](const std::vector<float>& values) {
      return type == 1 ? test::as_half(values) : test::as_bfloat(values);
    };
    const std::string file =
        gguf_with(tiny, tiny.gguf_metadata(), [&](const TinyLlama::Weight& weight, Stored& stored) {
          stored = {type, pack(weight.values)};
        });
    test::expect_weights(load(file), tiny);
    const Model kept = load(file, {.keep_format = true});
    EXPECT_EQ(kept.layers[0].attention_norm.format(), ElementFormat::kFloat32);
    EXPECT_EQ(kept.layers[1].w_down.format(), format);
    const std::string wanted = pack(tiny.weights()[18].values);
    ASSERT_EQ(kept.layers[1].w_down.bytes(), wanted.size());
    EXPECT_EQ(std::memcmp(kept.layers[1].w_down.data(), wanted.data(), wanted.size()), 0);
  }
}

// Every row is quantised to bytes q with one scale, 1/64, which represents the tiny values exactly.
TEST(LoadGguf, reads_quantised_tensors) {
  const TinyLlama tiny;
  const std::string file =
      gguf_with(tiny, tiny.gguf_metadata(), [](const TinyLlama::Weight& weight, Stored& stored) {
        if (weight.is_norm) return;
        stored = {8, {}};
        for (size_t i = 0; i < weight.values.size(); ++i) {
          if (i % 32 == 0) test::append(stored.bytes, uint16_t{0x2400});  // 2^-6
          stored.bytes += static_cast<char>(weight.values[i] * 64);
        }
      });
  test::expect_weights(load(file), tiny);
  const Model kept = load(file, {.keep_format = true});
  EXPECT_EQ(kept.layers[0].wq.format(), ElementFormat::kQ8_0);
  EXPECT_EQ(kept.final_norm.format(), ElementFormat::kFloat32);
}

TEST(LoadGguf, mixes_formats_by_tensor) {
  TinyLlama tiny;
  tiny.dim = 256;
  const std::string file =
      gguf_with(tiny, tiny.gguf_metadata(), [&](const TinyLlama::Weight& weight, Stored& stored) {
        const int64_t elements = weight.rows * weight.cols;
        if (weight.gguf == "token_embd.weight") {
          stored = {14, {}};  // Q6_K: q = 0, scales 1, d = 0.5
          for (int64_t i = 0; i < elements / 256; ++i) {
            stored.bytes += std::string(192, '\0') + std::string(16, '\1');
            test::append(stored.bytes, uint16_t{0x3800});
          }
        } else if (weight.gguf == "blk.0.attn_q.weight") {
          stored = {2, {}};  // Q4_0: q = 15 | 1, d = 1
          for (int64_t i = 0; i < elements / 32; ++i) {
            test::append(stored.bytes, uint16_t{0x3c00});
            stored.bytes += std::string(16, '\x1f');
          }
        } else if (weight.gguf == "blk.0.attn_k.weight") {
          stored = {3, {}};  // Q4_1: q = 2, d = 1, m = 0.5
          for (int64_t i = 0; i < elements / 32; ++i) {
            test::append(stored.bytes, uint16_t{0x3c00});
            test::append(stored.bytes, uint16_t{0x3800});
            stored.bytes += std::string(16, '\x22');
          }
        }
      });
  const Model model = load(file);
  EXPECT_EQ(model.token_embedding.f32()[9 * 256 + 255], -16.0f);
  EXPECT_EQ(model.layers[0].wq.f32()[15], 7.0f);
  EXPECT_EQ(model.layers[0].wq.f32()[16], -7.0f);
  EXPECT_EQ(model.layers[0].wk.f32()[0], 2.5f);
}

TEST(LoadGguf, scales_rope_as_the_file_says) {
  const TinyLlama tiny;
  GgufWriter linear = tiny.gguf_metadata();
  linear.text("llama.rope.scaling.type", "linear").real("llama.rope.scaling.factor", 4);
  EXPECT_DOUBLE_EQ(load(gguf_with(tiny, linear)).config.rope_frequencies[1], 0.1 / 4);

  GgufWriter by_pair = tiny.gguf_metadata();
  by_pair.tensor("rope_freqs.weight", {4}, 0, test::bytes_of(std::vector<float>{1, 2, 4, 8}));
  const Model model = load(gguf_with(tiny, by_pair));
  EXPECT_DOUBLE_EQ(model.config.rope_frequencies[0], 1);
  EXPECT_DOUBLE_EQ(model.config.rope_frequencies[3], 0.001 / 8);

  GgufWriter yarn = tiny.gguf_metadata();
  yarn.text("llama.rope.scaling.type", "yarn");
  expect_error(ErrorCode::kInvalidArgument, {kName, "yarn"}, [&] { load(gguf_with(tiny, yarn)); });
}

TEST(LoadGguf, knows_the_ids_that_begin_and_end_text) {
  const TinyLlama tiny;
  GgufWriter writer = tiny.gguf_metadata();
  writer.text("tokenizer.ggml.model", "gpt2")
      .integer("tokenizer.ggml.bos_token_id", 4)
      .integer("tokenizer.ggml.eos_token_id", 5)
      .integer("tokenizer.ggml.eot_token_id", 6)
      .integer("tokenizer.ggml.eom_token_id", 5);
  const Model model = load(gguf_with(tiny, writer));
  EXPECT_EQ(model.config.bos_id, 4);
  EXPECT_EQ(model.config.eos_ids, (std::vector<int32_t>{5, 6}));
  writer.integer("tokenizer.ggml.unknown_token_id", 10);
  expect_error(ErrorCode::kIo, {"unknown_token_id is 10", "[0, 10)"},
               [&] { load(gguf_with(tiny, writer)); });
}

TEST(LoadGguf, names_the_tensor_that_is_wrong) {
  const TinyLlama tiny;
  const auto load_changed = [&](const std::string& name, const auto& write) {
    GgufWriter writer = tiny.gguf_metadata();
    for (const TinyLlama::Weight& weight : tiny.weights()) {
      std::vector<uint64_t> shape = {static_cast<uint64_t>(weight.cols)};
      if (!weight.is_norm) shape.push_back(weight.rows);
      if (weight.gguf == name)
        write(writer, shape, test::bytes_of(weight.values));
      else
        writer.tensor(weight.gguf, shape, 0, test::bytes_of(weight.values));
    }
    load(writer.finish());
  };
  using Shape = std::vector<uint64_t>;
  const std::string name = "blk.1.ffn_up.weight";
  const auto expect = [&](ErrorCode code, const std::string& fragment, const auto& write) {
    expect_error(code, {kName, name, fragment}, [&] { load_changed(name, write); });
  };
  // A tensor of another name in its place keeps the count right.
  expect(ErrorCode::kIo, "is missing", [](GgufWriter& writer, const Shape& shape, const auto& b) {
    writer.tensor("other", shape, 0, b);
  });
  expect(ErrorCode::kIo, "has the shape [64, 32], must be [32, 64]",
         [](GgufWriter& writer, const Shape&, const auto& b) {
           writer.tensor("blk.1.ffn_up.weight", {64, 32}, 0, b);
         });
  expect(ErrorCode::kIo, "has the shape [2048]",
         [](GgufWriter& writer, const Shape&, const auto& b) {
           writer.tensor("blk.1.ffn_up.weight", {2048}, 0, b);
         });
  expect(ErrorCode::kInvalidArgument, "ggml type 12",
         [](GgufWriter& writer, const Shape& shape, const auto& b) {
           writer.tensor("blk.1.ffn_up.weight", shape, 12, b);
         });
  expect(ErrorCode::kIo, "rows of 32 elements, must be a multiple of Q6_K's 256",
         [](GgufWriter& writer, const Shape& shape, const auto& b) {
           writer.tensor("blk.1.ffn_up.weight", shape, 14, b);
         });
  expect(ErrorCode::kIo, "truncated", [](GgufWriter& writer, const Shape& shape, const auto&) {
    writer.tensor_at("blk.1.ffn_up.weight", shape, 0, uint64_t{1} << 40);
  });
  expect(ErrorCode::kIo, "overlap", [](GgufWriter& writer, const Shape& shape, const auto&) {
    writer.tensor_at("blk.1.ffn_up.weight", shape, 0, 0);
  });
}

TEST(LoadGguf, refuses_tensors_that_it_would_ignore) {
  const TinyLlama tiny;
  GgufWriter writer = tiny.gguf_metadata();
  writer.tensor("blk.0.attn_q.bias", {32}, 0, std::string(128, '\0'));
  expect_error(ErrorCode::kInvalidArgument, {kName, "blk.0.attn_q.bias", "no part"},
               [&] { load(gguf_with(tiny, writer)); });
}

TEST(LoadGguf, refuses_metadata_it_cannot_honour) {
  const TinyLlama tiny;
  const auto expect = [&](ErrorCode code, const std::string& fragment, const auto& change) {
    GgufWriter writer = tiny.gguf_metadata();
    change(writer);
    expect_error(code, {kName, fragment}, [&] { load(gguf_with(tiny, writer)); });
  };
  constexpr ErrorCode kRefused = ErrorCode::kInvalidArgument;
  expect(kRefused, "expert_count is 8", [](auto& w) { w.integer("llama.expert_count", 8); });
  expect(kRefused, "rope.dimension_count is 4",
         [](auto& w) { w.integer("llama.rope.dimension_count", 4); });
  expect(kRefused, "value_length is 16",
         [](auto& w) { w.integer("llama.attention.value_length", 16); });
  expect(kRefused, "sliding_window is 4",
         [](auto& w) { w.integer("llama.attention.sliding_window", 4); });
  expect(ErrorCode::kIo, "vocab_size is 11", [](auto& w) { w.integer("llama.vocab_size", 11); });
  expect(ErrorCode::kIo, "rope_theta is",
         [](auto& w) { w.real("llama.rope.freq_base", INFINITY); });
  expect(ErrorCode::kIo, "scaling factor is 0",
         [](auto& w) { w.real("llama.rope.scale_linear", 0); });
}

TEST(LoadGguf, refuses_other_architectures_and_files_without_a_model) {
  const std::string other = GgufWriter().text("general.architecture", "gemma3").finish();
  expect_error(ErrorCode::kInvalidArgument, {kName, "gemma3"}, [&] { load(other); });
  expect_error(ErrorCode::kIo, {"embedding_length is missing"},
               [] { load(GgufWriter().text("general.architecture", "llama").finish()); });
  expect_error(ErrorCode::kIo, {"holds no model"},
               [] { load(TinyLlama{}.gguf_metadata().finish()); });
}

TEST(LoadGguf, refuses_dimensions_before_it_allocates_by_them) {
  TinyLlama wide;
  const auto expect = [](const TinyLlama& tiny, const std::string& fragment) {
    expect_error(ErrorCode::kIo, {kName, fragment},
                 [&] { load(gguf_with(TinyLlama{}, tiny.gguf_metadata())); });
  };
  wide.layers = 1 << 23;
  expect(wide, "block_count is 8388608, which takes 75497474 tensors");
  wide = {};
  wide.hidden = 0xffffffff;
  expect(wide, "hidden_dim is 4294967295");
  wide = {};
  wide.dim = 1 << 20;
  expect(wide, "head_dim is 262144");
  wide = {};
  wide.context = 0;
  expect(wide, "context_length is 0");
  wide = {};
  wide.kv_heads = 0;
  expect(wide, "num_kv_heads is 0");
}

}  // namespace
}  // namespace llm
