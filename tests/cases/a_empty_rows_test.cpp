// Public reports, section A: rows without keys, masks, and what the lse says.
#include <numeric>

#include "cases/merge_states.hpp"

namespace rapt::test {
namespace {

// GPUs merge states of all of them.
std::vector<DType> state_dtypes() {
  return some_of<DType>({DType::kFloat32, DType::kBFloat16, DType::kFloat16}, 2);
}

// Values that fp16 and bf16 hold exactly, all different.
State some_state(DType dtype, float lse) {
  State state = State::filled(1, 1, 64, 0, lse, dtype);
  for (size_t d = 0; d < state.out.size(); d++) state.out[d] = 0.25f * (float(d) - 20);
  return state;
}

TEST(EmptyRows, A01_merging_two_empty_states_is_empty) {
  for (DType dtype : state_dtypes()) {
    const State empty = State::filled(1, 1, 64, 0, -kInf, dtype);
    const State result = merged({empty, empty}, dtype);
    EXPECT_EQ(result.out, std::vector<float>(64, 0.0f));
    EXPECT_EQ(result.lse[0], -kInf);
  }
}

TEST(EmptyRows, A01_empty_is_the_identity_bit_for_bit_on_either_side) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (DType dtype : state_dtypes())
    for (float marker : {-INFINITY, INFINITY})
      for (float garbage : {0.0f, 3.5f, nan}) {
        const State empty = State::filled(1, 1, 64, garbage, marker, dtype);
        const State x = some_state(dtype, 0.7f);
        for (const State& result :
             {merged({empty, x}, dtype), merged({x, empty}, dtype), merged({empty, x}, dtype, 0),
              merged({x, empty}, dtype, 0), merged({x, empty}, dtype, 1)}) {
          EXPECT_EQ(result.out, x.out);
          EXPECT_EQ(result.lse, x.lse);
        }
      }
}

TEST(EmptyRows, A01_three_way_merge_with_none_to_three_empty_members) {
  const State empty = State::filled(1, 1, 64, std::numeric_limits<float>::quiet_NaN(), INFINITY);
  const State x = some_state(DType::kFloat32, 0.7f);
  State all = merged({empty, empty, empty}, DType::kFloat32);
  EXPECT_EQ(all.out, std::vector<float>(64, 0.0f));
  EXPECT_EQ(all.lse[0], -kInf);
  for (const State& one :
       {merged({x, empty, empty}, DType::kFloat32), merged({empty, x, empty}, DType::kFloat32),
        merged({empty, empty, x}, DType::kFloat32)}) {
    EXPECT_EQ(one.out, x.out);
    EXPECT_EQ(one.lse, x.lse);
  }
  // Equal states n times over: the same output, and ln n more in the lse.
  const State two = merged({x, empty, x}, DType::kFloat32);
  const State three = merged({x, x, x}, DType::kFloat32);
  for (size_t d = 0; d < 64; d++) {
    EXPECT_NEAR(two.out[d], x.out[d], 1e-6 * std::abs(x.out[d]));
    EXPECT_NEAR(three.out[d], x.out[d], 1e-6 * std::abs(x.out[d]));
  }
  EXPECT_NEAR(two.lse[0], 0.7 + std::log(2), 1e-6);
  EXPECT_NEAR(three.lse[0], 0.7 + std::log(3), 1e-6);
}

TEST(EmptyRows, A01_a_context_cut_into_chunks_of_0_and_5_keys) {
  for (DType dtype : dtypes()) {
    Problem whole{.spec = make_spec(dtype, 4, 2, 64), .requests = {{1, 5, 9}}};
    Problem nothing = whole;
    nothing.requests[0].kv_len = 0;
    on_every_backend(whole, [&](const Outcome& outcome, const Backend& backend) {
      const State x = state_of(whole, outcome);
      const State empty = state_of(nothing, run(nothing, backend));
      const State result = merged({empty, x}, dtype, -1, backend);
      EXPECT_EQ(result.out, x.out);
      EXPECT_EQ(result.lse, x.lse);
    });
  }
}

TEST(EmptyRows, A03_rows_without_keys_have_lse_minus_infinity) {
  for (DType dtype : dtypes())
    for (auto [hq, hkv] : some_of<std::pair<int, int>>({{4, 2}, {1, 1}, {8, 2}, {14, 2}})) {
      Problem problem{.spec = make_spec(dtype, hq, hkv, 64), .requests = {{5, 3}}};
      problem.k = constant(0);
      problem.v = constant(1);
      on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
        const double want[] = {-kInf, -kInf, 0, std::log(2), std::log(3)};
        for (int64_t t = 0; t < 5; t++)
          for (int64_t h = 0; h < problem.spec.num_query_heads; h++) {
            const double lse = lse_at(problem, outcome, t, h);
            if (t < 2)
              EXPECT_EQ(lse, -kInf);
            else
              EXPECT_NEAR(lse, want[t], 1e-6);
            for (int64_t d = 0; d < 64; d++)
              EXPECT_NEAR(outcome.out[(t * problem.spec.num_query_heads + h) * 64 + d], t >= 2,
                          t < 2 ? 0 : 1e-6);
          }
      });
    }
}

// One key's raw logit is row_max, the others lie 5 % below; no step may appear where a finite
// stand-in for minus infinity would sit.
TEST(EmptyRows, A04_logits_below_any_finite_sentinel_still_count) {
  for (DType dtype : dtypes())
    for (double row_max : some_of<double>({-1e5, -1e6, -4e4, -5e4, -6e4, -95000.0}, 2))
      for (RequestLengths lengths : some_of<RequestLengths>({{1, 64}, {64, 64}, {1, 2048}}, 2)) {
        Problem problem{.spec = make_spec(dtype, 2, 1, 128), .requests = {lengths}};
        problem.spec.scale = 1;
        problem.q = constant(1);
        problem.k = [=](int64_t, int64_t token, int64_t, int64_t) {
          return static_cast<float>((token == 0 ? row_max : row_max - 5000) / 128);
        };
        const double logit = 128 * round_to(dtype, row_max / 128);
        const Values values = values_of(problem);
        on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
          for (int64_t t = 0; t < lengths.query_len; t++)
            for (int64_t h = 0; h < 2; h++) {
              EXPECT_NEAR(lse_at(problem, outcome, t, h), logit, 1e-6 * std::abs(logit));
              for (int64_t d = 0; d < 128; d++)
                ASSERT_NEAR(outcome.out[(t * 2 + h) * 128 + d], values.v[d],
                            1e-2 * std::abs(values.v[d]))
                    << "row max " << row_max;
            }
        });
      }
}

TEST(EmptyRows, A06_prefix_and_suffix_weigh_by_their_keys) {
  for (DType dtype : dtypes()) {
    Problem prefix{.spec = make_spec(dtype, 2, 1, 64), .requests = {{1, 3072}}};
    prefix.spec.causal = false;
    prefix.q = constant(0);
    prefix.v = constant(0);
    Problem suffix = prefix;
    suffix.requests = {{1, 64}};
    suffix.v = constant(1);
    on_every_backend(prefix, [&](const Outcome& outcome, const Backend& backend) {
      const Outcome tail = run(suffix, backend);
      EXPECT_NEAR(outcome.lse[0], std::log(3072.0), 1e-5);
      EXPECT_NEAR(tail.lse[0], std::log(64.0), 1e-5);
      const State result =
          merged({state_of(prefix, outcome), state_of(suffix, tail)}, DType::kFloat32);
      for (float out : result.out) EXPECT_NEAR(out, 64.0 / 3136, 1e-6);  // base 2 gives 0.00374
    });
  }
}

TEST(EmptyRows, A08_lse_of_grouped_heads_however_the_keys_are_split) {
  Problem problem{.spec = make_spec(DType::kBFloat16, 8, 2, 64),
                  .requests = {{1, 4096}, {1, 17}, {1, 300}}};
  problem.q = constant(0);
  auto claim = [&](const Outcome& outcome, const Backend&) {
    for (int64_t h = 0; h < 8; h++) {
      EXPECT_NEAR(lse_at(problem, outcome, 0, h), 8.3178, 1e-4);
      EXPECT_NEAR(lse_at(problem, outcome, 1, h), 2.8332, 1e-4);
      EXPECT_NEAR(lse_at(problem, outcome, 2, h), 5.7038, 1e-4);
    }
  };
  on_every_backend(problem, claim);
  problem.spec.batch_invariant = true;  // other splits
  for (Backend backend : backends_for(problem.spec)) {
    backend.num_threads = 8;
    claim(run(problem, backend), backend);
  }
}

TEST(EmptyRows, A09_a_request_without_work_writes_nothing_astray) {
  for (DType dtype : dtypes()) {
    Problem problem{.spec = make_spec(dtype, 4, 2, 64), .requests = {{1, 0}, {7, 512}}};
    problem.layout.padding_rows = 3;
    const Expected expected = expect(problem);
    on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
      for (int64_t h = 0; h < 4; h++) EXPECT_EQ(lse_at(problem, outcome, 0, h), -kInf);
      EXPECT_EQ(verdict(problem, expected, outcome), "");
    });
  }
}

TEST(EmptyRows, A11_key_lengths_of_zero) {
  const std::vector<std::vector<RequestLengths>> batches = {
      {},                        // B = 0
      {{0, 0}},                  // T = 0
      {{0, 7}, {0, 0}},          // T = 0 with keys
      {{1, 0}, {1, 0}, {1, 0}},  // (a) decode
      {{5, 0}, {9, 0}},          // (a) prefill
      {{3, 0}, {2, 4}},          // (b)
      {{0, 6}, {2, 4}},          // (c)
      {{1, 0}, {1, 40}},
  };
  for (const std::vector<RequestLengths>& batch : batches)
    for (bool causal : {false, true})
      for (int32_t page_size : some_of<int32_t>({16, 0})) {
        Problem problem{.spec = make_spec(DType::kBFloat16, 4, 2, 64), .requests = batch};
        problem.spec.causal = causal;
        problem.spec.page_size = page_size;
        problem.layout.padding_rows = 2;
        expect_oracle(problem);
      }
}

TEST(EmptyRows, A13_slots_past_the_length_influence_nothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = INFINITY;
  for (DType dtype : dtypes())
    for (int32_t kv_len : {13, 16, 45})
      for (int32_t query_len : {1, 4, 40}) {
        Problem problem{.spec = make_spec(dtype, 4, 2, 64), .requests = {{query_len, kv_len}}};
        problem.spec.window = {20, -1};  // with 45 keys and 1 query the first page is unreached
        problem.layout.unread_k = problem.layout.unread_v = 0;
        on_every_backend(problem, [&](const Outcome& clean, const Backend& backend) {
          for (auto [k, v] :
               {std::pair{nan, 0.0f}, {0.0f, nan}, {nan, nan}, {inf, inf}, {-inf, 1e3f}}) {
            Problem poisoned = problem;
            poisoned.layout.unread_k = k;
            poisoned.layout.unread_v = v;
            const Outcome outcome = run(poisoned, backend);
            ASSERT_EQ(outcome.out, clean.out) << "K " << k << " V " << v;
            ASSERT_EQ(outcome.lse, clean.lse) << "K " << k << " V " << v;
          }
        });
      }
}

TEST(EmptyRows, A15_lengths_off_the_tile_and_cached_context) {
  for (DType dtype : dtypes()) {
    for (int32_t kv_len : {17, 255, 256, 257}) {
      Problem problem{.spec = make_spec(dtype, 2, 1, 64), .requests = {{1, kv_len}}};
      problem.spec.causal = false;
      problem.q = constant(0);
      const Values values = values_of(problem);
      on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
        EXPECT_NEAR(outcome.lse[0], std::log(double(kv_len)), 1e-5);
        for (int64_t d = 0; d < 64; d++) {
          double mean = 0;
          for (int64_t j = 0; j < kv_len; j++) mean += values.v[j * 64 + d] / kv_len;
          EXPECT_NEAR(outcome.out[d], mean, 2 * unit_roundoff(dtype) + 1e-6);
        }
      });
    }
    Problem cached{.spec = make_spec(dtype, 2, 1, 64), .requests = {{2, 5}}};
    cached.q = constant(0);
    on_every_backend(cached, [&](const Outcome& outcome, const Backend&) {
      EXPECT_NEAR(lse_at(cached, outcome, 0, 0), std::log(4.0), 1e-6);
      EXPECT_NEAR(lse_at(cached, outcome, 1, 1), std::log(5.0), 1e-6);
    });
  }
}

// A row whose scores are all NaN has seen keys: it is NaN, not empty, also where its keys are cut.
TEST(EmptyRows, a_nan_query_is_not_an_empty_row) {
  for (const auto& [query_len, kv_len] : {std::pair{1, 20}, {1, 20000}, {40, 60}}) {
    Problem problem{.spec = make_spec(finest_dtype(), 4, 2, 64), .requests = {{query_len, kv_len}}};
    problem.q = [](int64_t, int64_t, int64_t, int64_t) { return std::nanf(""); };
    for (const Backend& backend : backends_for(problem.spec)) {
      const Outcome outcome = run(problem, backend);
      for (float x : outcome.out) ASSERT_TRUE(std::isnan(x)) << backend.describe() << outcome.plan;
      for (float x : outcome.lse) ASSERT_TRUE(std::isnan(x)) << backend.describe() << outcome.plan;
    }
  }
}

}  // namespace
}  // namespace rapt::test
