// GoogleTest over the support library: a claim checked on every accepted backend.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/oracle.hpp"

namespace rapt::test {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Runs the problem on every backend and gives each outcome to `claim(outcome, backend)`.
template <typename Claim>
void on_every_backend(const Problem& problem, const Claim& claim) {
  Tensors tensors(problem);
  const std::vector<Backend> backends =
      backends_for(problem.spec, tensors.select_options(Backend{}));
  ASSERT_FALSE(backends.empty()) << "no backend accepts " << problem.describe();
  for (const Backend& backend : backends) {
    SCOPED_TRACE(backend.describe() + ": " + problem.describe());
    const Outcome outcome = run(tensors, backend);
    ASSERT_EQ(outcome.fault, "");
    claim(outcome, backend);
    if (testing::Test::HasFailure()) return;
  }
}

// Every backend is within the bound of the oracle, and writes only what it may.
inline void expect_oracle(const Problem& problem) {
  ASSERT_EQ(verdict_of_all(problem), "");
}

// The rows of request b, for comparing bits across batches; -0 and 0 count as equal.
inline std::vector<float> rows_of(const Problem& problem, const Outcome& outcome, size_t b) {
  const int64_t tokens = problem.num_tokens(), heads = problem.spec.num_query_heads;
  const int64_t row = heads * problem.spec.dim_vo();
  int64_t start = 0;
  for (size_t i = 0; i < b; i++) start += problem.requests[i].query_len;
  const int64_t end = start + problem.requests[b].query_len;
  std::vector<float> rows(outcome.out.begin() + start * row, outcome.out.begin() + end * row);
  for (int64_t h = 0; h < heads && !outcome.lse.empty(); h++)
    rows.insert(rows.end(), outcome.lse.begin() + h * tokens + start,
                outcome.lse.begin() + h * tokens + end);
  return rows;
}

// lse of a token of the whole batch.
inline double lse_at(const Problem& problem, const Outcome& outcome, int64_t token, int64_t head) {
  return outcome.lse[head * problem.num_tokens() + token];
}

// The plan had rows whose keys were cut, by the words of each backend.
inline bool has_splits(const Outcome& outcome) {
  for (const char* words : {" splits merged", " rows merged"})
    if (outcome.plan.find(words) != std::string::npos)
      return outcome.plan.find(std::string(" 0") + words) == std::string::npos;
  return false;
}

inline ValueOf constant(float value) {
  return [value](int64_t, int64_t, int64_t, int64_t) { return value; };
}

}  // namespace rapt::test
