// The cases I01 ... I09 are public bug reports against other samplers, with the right values.
#include "sampling/sample_row.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <set>

#include "sampling/philox.hpp"

namespace rapt {
namespace {

using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<int32_t> kept(const std::vector<double>& probabilities, const SamplingParams& params) {
  return filter_row(logits_of(probabilities), params).tokens;
}

TEST(SampleRow, I01_top_k_keeps_exactly_k_of_tied_tokens) {
  const Candidates two = filter_row(logits_of({0.4, 0.3, 0.3, 0.0}), {.top_k = 2});
  EXPECT_THAT(two.tokens, ElementsAre(0, 1));
  EXPECT_NEAR(two.weights[0] / (two.weights[0] + two.weights[1]), 0.5714, 1e-4);

  const std::vector<float> equal(1000, 1.5f);
  EXPECT_THAT(filter_row(equal, {.top_k = 10}).tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(SampleRow, I02_top_1_of_a_tie_is_the_lower_index_for_every_seed) {
  const std::vector<float> logits = {3, 7, 7, 1};
  for (uint64_t seed = 0; seed < 1000; seed++)
    ASSERT_EQ(sample_row(logits, {.top_k = 1, .seed = seed}).token, 1);
}

TEST(SampleRow, I04_rows_of_nan_and_infinity_end_with_a_status) {
  constexpr size_t kVocab = 100352;
  const auto start = std::chrono::steady_clock::now();
  for (const SamplingParams& params :
       {SamplingParams{.top_k = 1}, SamplingParams{.top_p = 0.9f}, SamplingParams{.min_p = 0.1f},
        SamplingParams{.temperature = 0}, SamplingParams{}}) {
    EXPECT_EQ(sample_row(std::vector(kVocab, kNaN), params).status, SampleStatus::kNan);
    std::vector<float> one_nan(kVocab, 1.0f);
    one_nan[77777] = kNaN;
    EXPECT_EQ(sample_row(one_nan, params).status, SampleStatus::kNan);
    EXPECT_EQ(sample_row(one_nan, params).token, -1);

    std::vector<float> row(kVocab, -kInf);
    EXPECT_EQ(sample_row(row, params).status, SampleStatus::kNothingLeft);
    EXPECT_EQ(sample_row(row, params).token, -1);
    row[4711] = -3;
    EXPECT_EQ(sample_row(row, params).token, 4711);
    row[99999] = -3;  // two equal values, the rest -inf
    EXPECT_THAT(sample_row(row, params).token, testing::AnyOf(4711, 99999));
    EXPECT_EQ(sample_row(row, {.top_k = 1}).token, 4711);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// Vocabularies that end anywhere in a vector; ties, zeros of both signs and NaN at every place.
TEST(SampleRow, arg_max_is_the_first_of_the_largest_wherever_it_stands) {
  for (const size_t vocab : {1, 2, 15, 16, 17, 40, 64, 75}) {
    for (size_t at = 0; at < vocab; at++) {
      for (const float largest : {-1e30f, 0.0f, 3.0f, kInf}) {
        std::vector<float> row(vocab, -kInf);
        row[at] = largest;
        for (size_t later = at + 1; later < vocab; later += 5) row[later] = largest;
        if (largest == 0 && at + 1 < vocab) row[at + 1] = -0.0f;
        ASSERT_EQ(sample_row(row, {.temperature = 0}).token, static_cast<int32_t>(at)) << vocab;
        row[at] = kNaN;
        ASSERT_EQ(sample_row(row, {.temperature = 0}).status, SampleStatus::kNan) << vocab;
      }
    }
  }
}

// A min-p below every weight filters nothing either, but goes the way of the filters.
TEST(SampleRow, draws_from_all_tokens_are_those_of_a_filter_that_keeps_all) {
  std::vector<float> row;
  for (int i = 0; i < 500; i++)
    row.push_back(i % 7 == 3 ? -kInf : static_cast<float>(i * 37 % 101) / 10 - (i > 490 ? 200 : 0));
  for (const float temperature : {0.1f, 1.0f, 30.0f}) {
    std::set<int32_t> drawn;
    for (uint64_t seed = 0; seed < 2000; seed++) {
      const SampledToken token = sample_row(row, {.temperature = temperature, .seed = seed});
      drawn.insert(token.token);
      ASSERT_EQ(token.token,
                sample_row(row, {.temperature = temperature, .min_p = 1e-30f, .seed = seed}).token);
      ASSERT_GT(row[static_cast<size_t>(token.token)], -kInf);
    }
    EXPECT_GT(drawn.size(), 3u);
  }
}

TEST(SampleRow, plus_infinity_takes_all_the_probability) {
  for (uint64_t seed = 0; seed < 50; seed++)
    EXPECT_EQ(sample_row(std::vector{5.0f, kInf, -kInf, 3.0f}, {.seed = seed}).token, 1);
}

TEST(SampleRow, I05_a_token_depends_on_row_seed_and_offset_alone) {
  std::vector<float> logits(512, 0.0f);
  std::set<int32_t> tokens;
  for (uint64_t seed : {1111, 2222, 3333, 4444}) {
    const int32_t token = sample_row(logits, {.seed = seed}).token;
    EXPECT_EQ(sample_row(logits, {.seed = seed}).token, token);
    EXPECT_NE(sample_row(logits, {.seed = seed, .offset = 1}).token, token);
    // Of equal weights the inverse of the cumulative distribution is floor(u V).
    EXPECT_EQ(token, static_cast<int32_t>(philox_uniform(seed, 0) * 512));
    tokens.insert(token);
  }
  EXPECT_GT(tokens.size(), 1u);
}

TEST(SampleRow, I07_top_p_keeps_the_smallest_set_that_reaches_it) {
  EXPECT_THAT(kept({0.5, 0.41, 0.09}, {.top_p = 0.9f}), ElementsAre(0, 1));
  EXPECT_THAT(kept({0.5, 0.3, 0.1, 0.1}, {.top_p = 0.8f}), ElementsAre(0, 1));
  EXPECT_THAT(kept({0.4, 0.3, 0.2, 0.1}, {.top_p = 0.8f}), ElementsAre(0, 1, 2));
  EXPECT_THAT(kept({0.4, 0.0, 0.3, 0.2, 0.1}, {.top_p = 1}), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(kept({0.1, 0.4, 0.4, 0.1}, {.top_p = 0}), ElementsAre(1));
}

TEST(SampleRow, I08_top_p_sees_the_distribution_that_top_k_left) {
  EXPECT_THAT(kept({0.1, 0.2, 0.3, 0.4}, {.top_k = 2, .top_p = 0.5f}), ElementsAre(3));
  EXPECT_THAT(kept({0.35, 0.25, 0.20, 0.05, 0.05, 0.05, 0.05}, {.top_k = 4, .top_p = 0.82f}),
              ElementsAre(0, 1, 2));
}

TEST(SampleRow, I09_k_outside_the_vocabulary_means_no_filter) {
  for (const size_t vocab : {size_t{50}, size_t{40001}}) {
    std::vector<float> logits(vocab);
    for (size_t i = 0; i < vocab; i++) logits[i] = static_cast<float>(i % 7);
    for (const int32_t k :
         {0, -1, static_cast<int32_t>(vocab), static_cast<int32_t>(vocab) + 1, INT32_MAX})
      EXPECT_EQ(filter_row(logits, {.top_k = k}).tokens.size(), vocab) << k;
    EXPECT_THAT(filter_row(logits, {.top_k = 1}).tokens, ElementsAre(6));
    EXPECT_EQ(sample_row(logits, {.temperature = 0, .top_k = 5}).token, 6);
  }
}

TEST(SampleRow, min_p_is_relative_to_the_largest_probability) {
  EXPECT_THAT(kept({0.5, 0.25, 0.15, 0.1}, {.min_p = 0.5f}), ElementsAre(0, 1));
  EXPECT_THAT(kept({0.5, 0.25, 0.15, 0.1}, {.min_p = 1}), ElementsAre(0));
  EXPECT_THAT(kept({0.5, 0.25, 0.15, 0.1}, {.min_p = 0}), ElementsAre(0, 1, 2, 3));
}

TEST(SampleRow, temperature_comes_before_the_filters) {
  // At temperature 0.5 the probabilities are squared: {0.36, 0.16, 0.0...} / 0.54 = {0.67, 0.30,
  // ...}.
  EXPECT_THAT(kept({0.6, 0.4, 0.1, 0.1}, {.temperature = 0.5f, .top_p = 0.9f}), ElementsAre(0, 1));
  EXPECT_THAT(kept({0.6, 0.4, 0.1, 0.1}, {.temperature = 1, .top_p = 0.9f}), ElementsAre(0, 1, 2));
}

// Against the definition by a full sort, where blocks of the growing selection end inside the set.
TEST(SampleRow, top_p_agrees_with_a_full_sort) {
  for (const size_t vocab : {size_t{63}, size_t{64}, size_t{65}, size_t{321}, size_t{5000}}) {
    std::vector<float> logits(vocab);
    for (size_t i = 0; i < vocab; i++)
      logits[i] = static_cast<float>(std::floor(philox_uniform(vocab, i) * 40) / 10);
    std::vector<int32_t> order(vocab);
    for (size_t i = 0; i < vocab; i++) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    double sum = 0;
    for (float logit : logits) sum += std::exp(static_cast<double>(logit));
    for (const double top_p : {0.1, 0.37, 0.5, 0.93, 0.999}) {
      std::vector<int32_t> expected;
      for (double mass = 0; mass < top_p * sum;) {
        expected.push_back(order[expected.size()]);
        mass += std::exp(static_cast<double>(logits[expected.back()]));
      }
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(filter_row(logits, {.top_p = static_cast<float>(top_p)}).tokens, expected)
          << vocab << " " << top_p;
    }
  }
}

// Chi-square with 3 degrees of freedom exceeds 16.3 once in a thousand; the seed is fixed.
TEST(SampleRow, draws_follow_the_probabilities) {
  const std::vector<double> p = {0.1, 0.2, 0.3, 0.4};
  const std::vector<float> logits = logits_of(p);
  constexpr int kDraws = 20000;
  std::vector<int> counts(4);
  for (uint64_t i = 0; i < kDraws; i++)
    counts[sample_row(logits, {.seed = 7, .offset = i}).token]++;
  double chi_square = 0;
  for (size_t i = 0; i < 4; i++)
    chi_square += std::pow(counts[i] - kDraws * p[i], 2) / (kDraws * p[i]);
  EXPECT_LT(chi_square, 16.3);
}

}  // namespace
}  // namespace rapt
