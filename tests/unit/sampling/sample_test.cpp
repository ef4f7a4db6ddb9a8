// The public call: dtypes, strides, batches, threads and refusals.
#include "rapt/sampling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/float16.hpp"
#include "rapt/error.hpp"

namespace rapt {
namespace {

constexpr int64_t kVocab = 40001;

std::vector<float> some_logits(int64_t rows) {
  std::vector<float> logits(static_cast<size_t>(rows * kVocab));
  uint32_t state = 1;
  for (float& logit : logits) {
    state = state * 1664525u + 1013904223u;
    logit = static_cast<float>(state >> 8) / 0x1p24f * 6;
  }
  return logits;
}

std::vector<int32_t> sample_all(Context& context, const TensorView& logits,
                                const std::vector<SamplingParams>& params) {
  std::vector<int32_t> tokens(params.size(), -7);
  std::vector<SampleStatus> statuses(params.size());
  sample(context, logits, params, tokens, statuses);
  for (SampleStatus status : statuses) EXPECT_EQ(status, SampleStatus::kOk);
  return tokens;
}

TEST(Sample, a_row_gives_the_same_token_alone_in_any_batch_and_with_any_threads) {
  const std::vector<float> logits = some_logits(8);
  std::vector<SamplingParams> params;
  for (uint64_t row = 0; row < 8; row++)
    params.push_back({.temperature = row == 3 ? 0.0f : 0.8f,
                      .top_k = row % 2 ? 50 : 0,
                      .top_p = row % 3 ? 0.9f : 1.0f,
                      .seed = row * 1111,
                      .offset = row});
  Context one({.num_threads = 1}), two({.num_threads = 2});
  const auto batch = TensorView::contiguous(logits.data(), DType::kFloat32, {8, kVocab});
  const std::vector<int32_t> tokens = sample_all(one, batch, params);
  EXPECT_EQ(sample_all(two, batch, params), tokens);
  for (size_t row = 0; row < 8; row++) {
    const auto alone = TensorView::contiguous(logits.data() + static_cast<int64_t>(row) * kVocab,
                                              DType::kFloat32, {1, kVocab});
    EXPECT_EQ(sample_all(two, alone, {params[row]})[0], tokens[row]);
  }
}

TEST(Sample, reads_16_bit_and_strided_rows) {
  Context context({.num_threads = 1});
  std::vector<uint16_t> half(64, float_to_float16(std::numeric_limits<float>::quiet_NaN()));
  std::vector<uint16_t> brain(64, float_to_bfloat16(std::numeric_limits<float>::quiet_NaN()));
  for (int64_t row = 0; row < 2; row++)
    for (int64_t i = 0; i < 5; i++) {
      const float logit = i == 3 - row ? 2.0f : -1.0f;
      half[static_cast<size_t>(row * 32 + i)] = float_to_float16(logit);
      brain[static_cast<size_t>(row * 32 + i)] = float_to_bfloat16(logit);
    }
  const std::vector<SamplingParams> greedy(2, {.temperature = 0});
  EXPECT_THAT(
      sample_all(context, TensorView::strided(half.data(), DType::kFloat16, {2, 5}, {32, 1}),
                 greedy),
      testing::ElementsAre(3, 2));
  EXPECT_THAT(
      sample_all(context, TensorView::strided(brain.data(), DType::kBFloat16, {2, 5}, {32, 1}),
                 greedy),
      testing::ElementsAre(3, 2));
}

TEST(Sample, a_bad_row_is_reported_and_leaves_the_others_alone) {
  Context context({.num_threads = 2});
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1, 2, 3, NAN, 5, 1, -kInf, -kInf, -kInf};
  const std::vector<SamplingParams> params(3, {.top_k = 1});
  std::vector<int32_t> tokens(3);
  std::vector<SampleStatus> statuses(3);
  sample(context, TensorView::contiguous(logits.data(), DType::kFloat32, {3, 3}), params, tokens,
         statuses);
  EXPECT_THAT(tokens, testing::ElementsAre(2, -1, -1));
  EXPECT_THAT(statuses, testing::ElementsAre(SampleStatus::kOk, SampleStatus::kNan,
                                             SampleStatus::kNothingLeft));
}

TEST(Sample, refuses_bad_arguments_and_writes_nothing) {
  Context context({.num_threads = 1});
  const std::vector<float> logits = {1, 2, 3, 4};
  std::vector<int32_t> tokens = {-9, -9};
  std::vector<SampleStatus> statuses(2);
  const auto refused = [&](const TensorView& view, std::vector<SamplingParams> params,
                           const std::string& word) {
    try {
      sample(context, view, params, tokens, statuses);
      ADD_FAILURE() << "accepted, expected a refusal naming " << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), testing::HasSubstr(word));
    }
    EXPECT_THAT(tokens, testing::ElementsAre(-9, -9));
  };
  const auto good = TensorView::contiguous(logits.data(), DType::kFloat32, {2, 2});
  refused(good, {{}}, "params");
  refused(good, {{}, {.temperature = -1}}, "temperature of row 1");
  refused(good, {{.temperature = NAN}, {}}, "temperature of row 0");
  refused(good, {{.top_p = NAN}, {}}, "top_p");
  refused(good, {{}, {.min_p = 1.5f}}, "min_p");
  refused(TensorView::contiguous(logits.data(), DType::kFloat32, {4}), {{}, {}}, "[rows, vocab]");
  refused(TensorView::contiguous(logits.data(), DType::kInt32, {2, 2}), {{}, {}}, "float32");
  refused(TensorView::strided(logits.data(), DType::kFloat32, {2, 2}, {1, 2}), {{}, {}},
          "contiguous");
  refused(TensorView::contiguous(nullptr, DType::kFloat32, {2, 2}), {{}, {}}, "no data");
  refused(TensorView::contiguous(reinterpret_cast<const std::byte*>(logits.data()) + 1,
                                 DType::kFloat32, {2, 2}),
          {{}, {}}, "aligned");
  refused(TensorView::strided(logits.data(), DType::kFloat32, {2, 2}, {INT64_MAX / 2, 1}), {{}, {}},
          "logits' rows");
}

TEST(Sample, no_rows_is_legal) {
  Context context({.num_threads = 1});
  sample(context, TensorView::contiguous(nullptr, DType::kFloat32, {0, 100}), {}, {}, {});
}

}  // namespace
}  // namespace rapt
