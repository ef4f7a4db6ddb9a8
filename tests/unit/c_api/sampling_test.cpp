#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "c_tensor.hpp"
#include "expect_status.hpp"

namespace rapt::test {
namespace {

class CSample : public testing::Test {
 protected:
  static constexpr int64_t kRows = 6, kVocabulary = 50;

  CSample()
      : logits(kRows * kVocabulary),
        view(TensorView::contiguous(logits.data(), DType::kFloat32, {kRows, kVocabulary})),
        tensor(view) {
    for (size_t i = 0; i < logits.size(); i++) logits[i] = 3 * std::sin(static_cast<float>(i * i));
    EXPECT_TRUE(succeeded(rapt_context_create(nullptr, &context)));
  }
  ~CSample() override { rapt_context_destroy(context); }

  std::vector<float> logits;
  TensorView view;
  CTensor tensor;
  rapt_context* context = nullptr;
  std::vector<int32_t> tokens = std::vector<int32_t>(kRows, -7);
  std::vector<rapt_sample_status> statuses = std::vector<rapt_sample_status>(kRows, -7);
};

TEST_F(CSample, draws_the_tokens_of_the_cpp_interface) {
  const std::vector<float> temperature{0, 0.5f, 1, 1, 2, 1}, top_p{1, 0.9f, 0.5f, 1, 1, 1};
  const std::vector<float> min_p{0, 0, 0, 0.1f, 0, 0};
  const std::vector<int32_t> top_k{0, 10, 0, 5, 50, 1};
  const std::vector<uint64_t> seed{1, 2, 3, 4, 5, uint64_t{1} << 63}, offset{0, 1, 2, 3, 4, 5};
  std::vector<SamplingParams> params(kRows);
  for (int64_t i = 0; i < kRows; i++)
    params[i] = {temperature[i], top_k[i], top_p[i], min_p[i], seed[i], offset[i]};
  std::vector<int32_t> expected(kRows);
  std::vector<SampleStatus> expected_statuses(kRows);
  Context cpp_context;
  sample(cpp_context, view, params, expected, expected_statuses);

  const rapt_sample_args args = {.struct_size = sizeof args,
                                 .logits = tensor.get(),
                                 .temperature = temperature.data(),
                                 .top_k = top_k.data(),
                                 .top_p = top_p.data(),
                                 .min_p = min_p.data(),
                                 .seed = seed.data(),
                                 .offset = offset.data(),
                                 .tokens = tokens.data(),
                                 .statuses = statuses.data()};
  EXPECT_TRUE(succeeded(rapt_sample(context, &args)));
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(statuses, std::vector<rapt_sample_status>(kRows, RAPT_SAMPLE_OK));
}

TEST_F(CSample, takes_null_for_defaults_and_reports_bad_rows) {
  logits[2 * kVocabulary + 7] = NAN;
  for (int64_t i = 0; i < kVocabulary; i++) logits[4 * kVocabulary + i] = -INFINITY;
  rapt_sample_args args = {.struct_size = sizeof args,
                           .logits = tensor.get(),
                           .tokens = tokens.data(),
                           .statuses = statuses.data()};
  EXPECT_TRUE(succeeded(rapt_sample(context, &args)));
  EXPECT_EQ(statuses, (std::vector<rapt_sample_status>{RAPT_SAMPLE_OK, RAPT_SAMPLE_OK,
                                                       RAPT_SAMPLE_NAN, RAPT_SAMPLE_OK,
                                                       RAPT_SAMPLE_NOTHING_LEFT, RAPT_SAMPLE_OK}));
  EXPECT_EQ(tokens[2], -1);
  EXPECT_EQ(tokens[4], -1);
  std::vector<SamplingParams> params(kRows);
  std::vector<int32_t> expected(kRows);
  std::vector<SampleStatus> expected_statuses(kRows);
  Context cpp_context;
  sample(cpp_context, view, params, expected, expected_statuses);
  EXPECT_EQ(tokens, expected);
}

TEST_F(CSample, refuses_bad_arguments_and_writes_nothing) {
  auto refuses = [&](const char* words, auto spoil) {
    rapt_sample_args args = {.struct_size = sizeof args,
                             .logits = tensor.get(),
                             .tokens = tokens.data(),
                             .statuses = statuses.data()};
    CTensor changed(view);
    spoil(args, changed.tensor);
    if (args.logits) args.logits = &changed.tensor;
    EXPECT_TRUE(refused(rapt_sample(context, &args), RAPT_INVALID_ARGUMENT, words));
  };
  using Args = rapt_sample_args;
  refuses("logits is null", [](Args& a, DLTensor&) { a.logits = nullptr; });
  refuses("tokens is null", [](Args& a, DLTensor&) { a.tokens = nullptr; });
  refuses("statuses is null", [](Args& a, DLTensor&) { a.statuses = nullptr; });
  refuses("must be [rows, vocabulary]", [](Args&, DLTensor& t) { t.ndim = 1; });
  refuses("rows in [0, ", [](Args&, DLTensor& t) { t.shape[0] = int64_t{1} << 62; });
  refuses("rows in [0, ", [](Args&, DLTensor& t) { t.shape[0] = int64_t{1} << 32; });
  refuses("logits", [](Args&, DLTensor& t) { t.dtype = {kDLInt, 32, 1}; });
  refuses("logits", [](Args&, DLTensor& t) { t.device = {kDLCUDA, 0}; });
  refuses("struct_size is 9", [](Args& a, DLTensor&) { a.struct_size = 9; });
  EXPECT_EQ(tokens, std::vector<int32_t>(kRows, -7));
  EXPECT_EQ(statuses, std::vector<rapt_sample_status>(kRows, -7));
}

}  // namespace
}  // namespace rapt::test
