// The dense layers on an (emulated) GPU against those on the host.
#include "llm/engine/device_layers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/float16.hpp"
#include "llm/engine/host_layers.hpp"
#include "llm/model/rope.hpp"
#include "unit/llm_cuda/emulated_gpu.hpp"
#include "unit/llm_engine/matrices.hpp"

namespace llm {
namespace {

using rapt::DType;
using rapt::TensorView;
using test::make_matrix;

constexpr int64_t kMostTokens = 6;

// Of formats that a file may mix; two calls make the same weights.
Model make_model(RopeStyle style, bool tied) {
  Model model;
  ModelConfig& config = model.config;
  config.dim = 64;
  config.hidden_dim = 96;
  config.num_layers = 2;
  config.num_query_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 16;  // 6 * 16 is not dim
  config.vocab_size = 50;
  config.rope_style = style;
  config.rope_frequencies = rope_frequencies(10000, config.head_dim);
  config.tied_embeddings = tied;
  uint32_t seed = 1;
  const auto matrix = [&](int64_t rows, int64_t cols, ElementFormat format) {
    return make_matrix(rows, cols, seed++, format);
  };
  constexpr ElementFormat kFormats[] = {ElementFormat::kFloat32, ElementFormat::kBFloat16};
  for (const ElementFormat format : kFormats) {
    LayerWeights& layer = model.layers.emplace_back();
    layer.attention_norm = matrix(1, 64, ElementFormat::kFloat32);
    layer.wq = matrix(96, 64, format);
    layer.wk = matrix(32, 64, ElementFormat::kQ8_0);
    layer.wv = matrix(32, 64, ElementFormat::kFloat16);
    layer.wo = matrix(64, 96, ElementFormat::kQ4_0);
    layer.ffn_norm = matrix(1, 64, ElementFormat::kFloat32);
    layer.w_gate = matrix(96, 64, format);
    layer.w_up = matrix(96, 64, format);
    layer.w_down = matrix(64, 96, ElementFormat::kQ4_1);
  }
  model.token_embedding = matrix(50, 64, ElementFormat::kFloat16);
  model.final_norm = matrix(1, 64, ElementFormat::kFloat32);
  if (!tied) model.output = matrix(50, 64, ElementFormat::kBFloat16);
  return model;
}

Step make_step(std::vector<int32_t> tokens, int32_t first_position,
               std::vector<int32_t> logit_rows) {
  Step step;
  for (size_t i = 0; i < tokens.size(); ++i) {
    step.positions.push_back(first_position + static_cast<int32_t>(i));
    step.slots.push_back(100 + static_cast<int64_t>(i));
  }
  step.tokens = std::move(tokens);
  step.logit_rows = std::move(logit_rows);
  return step;
}

// A tensor's values, wherever the device's memory is the host's.
std::vector<float> values_of_tensor(const TensorView& tensor) {
  std::vector<float> values;
  const auto* bits = static_cast<const uint16_t*>(tensor.data);
  for (int64_t t = 0; t < tensor.shape[0]; ++t)
    for (int64_t h = 0; h < tensor.shape[1]; ++h)
      for (int64_t i = 0; i < tensor.shape[2]; ++i) {
        const uint16_t value = bits[t * tensor.stride[0] + h * tensor.stride[1] + i];
        values.push_back(tensor.dtype == DType::kFloat16 ? rapt::float16_to_float(value)
                                                         : rapt::bfloat16_to_float(value));
      }
  return values;
}

void expect_near(const std::vector<float>& ours, const std::vector<float>& theirs,
                 double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  double largest = 0;
  for (const float value : theirs) largest = std::max<double>(largest, std::fabs(value));
  ASSERT_GT(largest, 0);
  for (size_t i = 0; i < ours.size(); ++i)
    ASSERT_NEAR(ours[i], theirs[i], tolerance * largest) << "of " << i;
}

// Something for the attention's output, the same on both sides.
void fill_out(const TensorView& out, DType dtype, uint32_t seed) {
  const auto count = static_cast<size_t>(out.shape[0] * out.shape[1] * out.shape[2]);
  ASSERT_EQ(out.stride[0], out.shape[1] * out.shape[2]);
  auto* bits = static_cast<uint16_t*>(const_cast<void*>(out.data));
  for (const float value : test::noise(count, seed))
    *bits++ =
        dtype == DType::kFloat16 ? rapt::float_to_float16(value) : rapt::float_to_bfloat16(value);
}

void expect_same_step(DenseLayers& device, DenseLayers& host, const Step& step, DType dtype) {
  const double half_ulp = dtype == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
  device.begin(step);
  host.begin(step);
  for (int64_t block = 0; block < 2; ++block) {
    const AttentionTensors ours = device.before_attention(block);
    const AttentionTensors theirs = host.before_attention(block);
    expect_near(values_of_tensor(ours.q), values_of_tensor(theirs.q), 2 * half_ulp);
    expect_near(values_of_tensor(ours.k), values_of_tensor(theirs.k), 2 * half_ulp);
    expect_near(values_of_tensor(ours.v), values_of_tensor(theirs.v), 2 * half_ulp);
    const auto* slots = static_cast<const int64_t*>(ours.slot_mapping.data);
    for (size_t t = 0; t < step.slots.size(); ++t) ASSERT_EQ(slots[t], step.slots[t]);
    const auto seed = static_cast<uint32_t>(block + 7);
    fill_out(ours.out, dtype, seed);
    fill_out(theirs.out, dtype, seed);
    device.after_attention(block);
    host.after_attention(block);
  }
  const TensorView ours = device.logits(), theirs = host.logits();
  ASSERT_EQ(ours.shape[0], std::ssize(step.logit_rows));
  for (int64_t r = 0; r < ours.shape[0]; ++r) {
    const auto row = [&](const TensorView& logits) {
      const auto* first = static_cast<const float*>(logits.data) + r * logits.stride[0];
      return std::vector<float>(first, first + logits.shape[1]);
    };
    expect_near(row(ours), row(theirs), 1e-4);
  }
}

TEST(DeviceLayers, compute_what_the_hosts_do) {
  test::use_emulated_gpu();
  rapt::Context gpu({.device = test::kEmulatedGpu}), cpu({.num_threads = 1});
  ThreadPool pool(2);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const RopeStyle style : {RopeStyle::kNeighbouringPairs, RopeStyle::kHalves}) {
      const bool tied = dtype == DType::kFloat16;
      DeviceLayers device(make_model(style, tied), gpu, pool, dtype, kMostTokens);
      HostLayers host(make_model(style, tied), cpu, pool, dtype, kMostTokens);
      // A chunk of a prompt, without logits; its end; decoding; as much as there is room for.
      for (const Step& step :
           {make_step({3, 49, 0, 3}, 0, {}), make_step({7, 8, 9, 10, 11}, 4, {4}),
            make_step({20}, 9, {0}), make_step({1, 2, 3, 4, 5, 6}, 1000, {0, 2, 3, 5})})
        expect_same_step(device, host, step, dtype);
      ASSERT_FALSE(testing::Test::HasFatalFailure());
    }
  }
}

// A decode step reads each matrix as fp32; of the embedding, where it is not the output matrix, a
// row.
TEST(DeviceLayers, count_the_bytes_of_their_weights) {
  test::use_emulated_gpu();
  rapt::Context gpu({.device = test::kEmulatedGpu});
  ThreadPool pool(1);
  const DeviceLayers layers(make_model(RopeStyle::kHalves, false), gpu, pool, DType::kFloat16, 1);
  constexpr int64_t kOfLayer = 160 * 64 + 64 * 96 + 192 * 64 + 64 * 96;
  EXPECT_EQ(layers.weight_bytes(), 4 * (2 * kOfLayer + 50 * 64));
  EXPECT_TRUE(layers.is_on_device());
}

// The embedding's memory, which nobody writes or reads, is a fraction of what the GPU would need.
TEST(DeviceLayers, weights_past_the_devices_memory_are_an_error_with_their_size) {
  test::use_emulated_gpu();
  rapt::Context gpu({.device = test::kEmulatedGpu});
  ThreadPool pool(1);
  constexpr int64_t kVocab = 20'000'000;
  Model model = make_model(RopeStyle::kHalves, true);
  model.config.vocab_size = kVocab;
  model.token_embedding = Matrix(ElementFormat::kQ4_0, kVocab, 64);
  constexpr int64_t kOfLayer = 160 * 64 + 64 * 96 + 192 * 64 + 64 * 96 + 2 * 64;
  const std::string bytes = std::to_string(4 * (2 * kOfLayer + kVocab * 64 + 64));
  try {
    DeviceLayers(std::move(model), gpu, pool, DType::kFloat16, 1);
    FAIL();
  } catch (const rapt::Error& error) {
    EXPECT_EQ(error.code(), rapt::ErrorCode::kOutOfMemory);
    EXPECT_THAT(error.what(), testing::HasSubstr(bytes + " bytes as fp32"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--dense host"));
  }
}

}  // namespace
}  // namespace llm
