// Cheap oracles 1 to 3: queries of zero count keys, one-hot values show the probabilities, values
// of one give one. And the fp64 oracle over the same matrix.
#include "cases/combinations.hpp"
#include "support/element.hpp"

namespace rapt::test {
namespace {

bool sees(const Problem& problem, const Values& values, size_t b, int64_t i, int64_t j) {
  const RequestLengths& lengths = problem.requests[b];
  return position_sees(problem.spec, i, j, lengths.query_len, lengths.kv_len) &&
         (values.mask.empty() || values.mask[values.mask_start[b] + i * lengths.kv_len + j]);
}

TEST(Oracles, the_fp64_oracle_agrees_over_the_matrix) {
  double worst = 0;
  for (const Problem& problem : combinations(117)) ASSERT_EQ(verdict_of_all(problem, &worst), "");
  RecordProperty("worst_ratio", std::to_string(worst));
  std::printf("worst error / bound: %.3f\n", worst);
}

// An infinite sink takes all of the weight, or none: what a row is then is known, and no bound
// grows with it.
TEST(Oracles, the_fp64_oracle_refuses_wrong_rows_beside_infinite_sinks) {
  for (const float sink :
       {0.5f, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()}) {
    Problem problem{.spec = make_spec(DType::kBFloat16, 4, 2, 64), .requests = {{3, 40}, {1, 0}}};
    problem.spec.sinks = problem.spec.needs_lse = true;
    problem.sinks = {0.5f, sink, 0.5f, 1.f};
    const Expected expected = expect(problem);
    EXPECT_LT(expected.out_bound, 0.1);
    EXPECT_LT(expected.lse_bound, 0.1);
    const Outcome right = run(problem, {"reference"});
    EXPECT_EQ(verdict(problem, expected, right), "");
    for (size_t i : {size_t{0}, right.out.size() / 2}) {
      Outcome wrong = right;
      wrong.out[i] += 1;
      EXPECT_NE(verdict(problem, expected, wrong), "") << sink << " " << i;
    }
    for (size_t i = 0; i < right.lse.size(); i++) {
      Outcome wrong = right;
      wrong.lse[i] = std::isfinite(right.lse[i]) ? right.lse[i] + 1 : 0;
      EXPECT_NE(verdict(problem, expected, wrong), "") << sink << " " << i;
    }
  }
}

TEST(Oracles, queries_of_zero_count_their_keys_and_average_the_values) {
  for (Problem problem : combinations(60, 200)) {
    problem.q = constant(0);
    problem.spec.sinks = problem.spec.alibi = false;
    const Values values = values_of(problem);
    const int64_t hq = problem.spec.num_query_heads, hkv = problem.spec.num_kv_heads;
    const int64_t dvo = problem.spec.dim_vo();
    on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
      for (size_t b = 0, t = 0; b < problem.requests.size(); b++)
        for (int64_t i = 0; i < problem.requests[b].query_len; i++, t++)
          for (int64_t h = 0; h < hq; h++) {
            std::vector<double> mean(dvo, 0);
            double count = 0;
            for (int64_t j = 0; j < problem.requests[b].kv_len; j++) {
              if (!sees(problem, values, b, i, j)) continue;
              count++;
              const int64_t key = (values.kv_start[b] + j) * hkv + h / (hq / hkv);
              for (int64_t d = 0; d < dvo; d++) mean[d] += values.v[key * dvo + d];
            }
            const double lse = lse_at(problem, outcome, t, h);
            if (count == 0)
              ASSERT_EQ(lse, -kInf);
            else
              ASSERT_NEAR(std::exp(lse), count, 1e-5 * count);
            for (int64_t d = 0; d < dvo; d++)
              ASSERT_NEAR(outcome.out[(t * hq + h) * dvo + d], count ? mean[d] / count : 0,
                          4 * unit_roundoff(problem.spec.dtype) + 2e-6);
          }
    });
  }
}

TEST(Oracles, one_hot_values_show_the_probabilities) {
  for (Problem problem : combinations(40, 300)) {
    problem.spec.sinks = false;
    const int64_t dvo = problem.spec.dim_vo();
    problem.v = [dvo](int64_t, int64_t t, int64_t, int64_t d) { return t % dvo == d ? 1.f : 0.f; };
    const Expected expected = expect(problem);
    on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
      ASSERT_EQ(verdict(problem, expected, outcome), "");
      const size_t rows = outcome.out.size() / dvo;
      for (size_t row = 0; row < rows; row++) {
        double sum = 0;
        for (int64_t d = 0; d < dvo; d++) {
          const float probability = outcome.out[row * dvo + d];
          ASSERT_GE(probability, 0);
          sum += probability;
        }
        const int64_t hq = problem.spec.num_query_heads;
        const bool empty = lse_at(problem, outcome, row / hq, row % hq) == -kInf;
        ASSERT_NEAR(sum, empty ? 0 : 1, 4 * unit_roundoff(problem.spec.dtype) + 2e-6);
      }
    });
  }
}

TEST(Oracles, values_of_one_give_one_or_zero) {
  for (Problem problem : combinations(40, 400)) {
    problem.spec.sinks = false;
    problem.v = constant(1);
    const int64_t hq = problem.spec.num_query_heads, dvo = problem.spec.dim_vo();
    on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
      for (size_t n = 0; n < outcome.out.size(); n++) {
        const int64_t row = n / dvo;
        const bool empty = lse_at(problem, outcome, row / hq, row % hq) == -kInf;
        ASSERT_NEAR(outcome.out[n], empty ? 0 : 1,
                    empty ? 0 : 2 * unit_roundoff(problem.spec.dtype) + 1e-6);
      }
    });
  }
}

}  // namespace
}  // namespace rapt::test
