// Public reports, section H: the same bits, run after run and, where asked for, batch after batch.
#include "support/check.hpp"

namespace rapt::test {
namespace {

TEST(Determinism, H01_a_decode_row_keeps_its_bits_beside_any_prefill) {
  Problem alone{.spec = make_spec(DType::kBFloat16, sized(14, 8), 2, 64),
                .requests = {{1, sized(19802, 2602), 1}}};
  alone.spec.batch_invariant = true;
  alone.spec.needs_lse = true;
  Problem nine = alone, ten = alone;
  nine.requests.insert(nine.requests.begin(), {9, 9, 2});
  ten.requests.push_back({10, 10, 2});
  Tensors beside_nine(nine), beside_ten(ten);
  on_every_backend(alone, [&](const Outcome& outcome, const Backend& backend) {
    const std::vector<float> want = rows_of(alone, outcome, 0);
    EXPECT_EQ(rows_of(nine, run(beside_nine, backend), 1), want);
    EXPECT_EQ(rows_of(ten, run(beside_ten, backend), 0), want);
  });
}

TEST(Determinism, H01_a_prefill_keeps_its_bits_among_50_short_ones) {
  Problem alone{.spec = make_spec(DType::kBFloat16, sized(14, 8), 2, 64),
                .requests = {{sized(300, 70), sized(300, 70), 100}}};
  alone.spec.batch_invariant = true;
  Problem crowd = alone;
  const int num_short = sized(50, 5);
  for (int b = 0; b < num_short; b++)
    crowd.requests.insert(crowd.requests.begin(), {1 + b % 7, 8 + b, b});
  Tensors among(crowd);
  on_every_backend(alone, [&](const Outcome& outcome, const Backend& backend) {
    EXPECT_EQ(rows_of(crowd, run(among, backend), num_short), rows_of(alone, outcome, 0));
  });
}

TEST(Determinism, H01_random_neighbours) {
  const std::vector<DType> types = dtypes();
  const uint64_t num_seeds = on_cpu() ? 12 : sized(60, 6);
  for (uint64_t seed = 0; seed < num_seeds; seed++) {
    auto draw = [&](int n, int tag) { return int32_t(uniform_of(seed, 900, tag) * n); };
    Problem alone{.spec = make_spec(types[seed % types.size()], 8, 2, 64)};
    alone.spec.batch_invariant = true;
    const int32_t query_len = std::array{1, 1, 5, 70}[draw(4, 1)];
    alone.requests = {{query_len, query_len + draw(600, 2), 1000}};
    Problem crowd{.spec = alone.spec};
    const int victim = draw(6, 3);
    for (int b = 0; b < 6; b++) {
      const int32_t len = draw(2, 10 + b) ? 1 : draw(40, 20 + b);
      crowd.requests.push_back({len, len + draw(300, 30 + b), b});
      if (b == victim) crowd.requests.push_back(alone.requests[0]);
    }
    Tensors among(crowd);
    on_every_backend(alone, [&](const Outcome& outcome, const Backend& backend) {
      EXPECT_EQ(rows_of(crowd, run(among, backend), victim + 1), rows_of(alone, outcome, 0));
    });
  }
}

// What is not finite stays with the request that has it, whether in its queries, keys or values.
TEST(Determinism, a_request_that_is_not_finite_changes_no_other) {
  for (DType dtype : dtypes())
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), INFINITY}) {
      Problem alone{.spec = make_spec(dtype, 8, 2, 64), .requests = {{1, 300, 1}, {40, 90, 2}}};
      alone.spec.batch_invariant = true;
      for (ValueOf Problem::*tensor : {&Problem::q, &Problem::k, &Problem::v}) {
        Problem crowd = alone;
        crowd.requests = {{1, 200, 3}, {1, 300, 1}, {30, 200, 3}, {40, 90, 2}, {1, 5, 3}};
        const auto values = [bad](int64_t id, int64_t token, int64_t head, int64_t dim) {
          return id == 3 ? bad : float(normal_of(7, token, head, dim));
        };
        crowd.*tensor = values;
        Problem want = alone;
        want.*tensor = values;
        Tensors among(crowd);
        on_every_backend(want, [&](const Outcome& outcome, const Backend& backend) {
          const Outcome got = run(among, backend);
          EXPECT_EQ(rows_of(crowd, got, 1), rows_of(want, outcome, 0));
          EXPECT_EQ(rows_of(crowd, got, 3), rows_of(want, outcome, 1));
        });
      }
    }
}

// Invariant bits do not depend on the number of threads either.
TEST(DeterminismOnCpu, H01_invariant_bits_at_any_thread_count) {
  Problem problem{.spec = make_spec(DType::kBFloat16, 8, 2, 64),
                  .requests = {{1, 1500}, {30, 60}, {1, 17}}};
  problem.spec.batch_invariant = true;
  Tensors tensors(problem);
  on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
    for (int32_t num_threads : {1, 2, 3, 5}) {
      const Outcome other = run(tensors, {backend.name, backend.isa, num_threads});
      EXPECT_EQ(other.out, outcome.out) << num_threads << " threads";
      EXPECT_EQ(other.lse, outcome.lse) << num_threads << " threads";
    }
  });
}

TEST(Determinism, the_same_plan_gives_the_same_bits_run_after_run) {
  Problem problem{.spec = make_spec(DType::kBFloat16, 8, 2, 64),
                  .requests = {{1, 1500}, {30, 60}, {1, 17}}};
  Tensors tensors(problem);
  on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
    const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
    Placed placed(tensors, backend);
    const Plan plan = attention.plan(placed.batch());
    for (int round = 0; round < sized(10, 2); round++) {
      attention.run(plan, placed.args(plan));
      const Outcome again = placed.collect();
      ASSERT_EQ(again.out, outcome.out);
      ASSERT_EQ(again.lse, outcome.lse);
    }
  });
}

}  // namespace
}  // namespace rapt::test
