// Public reports, section F, as far as plan, run and merge reach: sharded keys merged by hand, and
// several query tokens a request.
#include "cases/merge_states.hpp"

namespace rapt::test {
namespace {

// Rank r of a world owns the tokens t with t / interleave % world == r.
TEST(MultiToken, F03_shards_of_interleaved_tokens_merge_to_the_whole) {
  for (std::pair<int, int> cut :
       some_of<std::pair<int, int>>({{4, 16}, {4, 1}, {2, 1}, {3, 5}}, 2)) {
    const int world = cut.first, interleave = cut.second;
    Problem whole{.spec = make_spec(finest_dtype(), 4, 2, 40), .requests = {{8, 25}}};
    whole.q_amplitude = 2;
    const Values values = values_of(whole);
    const Expected expected = expect(whole, values);
    std::vector<Problem> shards;
    for (int rank = 0; rank < world; rank++) {
      std::vector<int64_t> owned;
      for (int64_t t = 0; t < 25; t++)
        if (t / interleave % world == rank) owned.push_back(t);
      Problem shard = whole;
      shard.requests[0].kv_len = static_cast<int32_t>(owned.size());
      shard.spec.causal = false;
      shard.spec.custom_mask = true;
      shard.k = [=](int64_t, int64_t t, int64_t h, int64_t d) {
        return values.k[(owned[t] * 2 + h) * 40 + d];
      };
      shard.v = [=](int64_t, int64_t t, int64_t h, int64_t d) {
        return values.v[(owned[t] * 2 + h) * 40 + d];
      };
      shard.mask = [=](int64_t, int64_t i, int64_t j) { return owned[j] <= i + 25 - 8; };
      shards.push_back(shard);
    }
    on_every_backend(shards[0], [&](const Outcome&, const Backend& backend) {
      std::vector<State> states;
      for (const Problem& shard : shards) states.push_back(state_of(shard, run(shard, backend)));
      const State result = merged(states, DType::kFloat32);
      Expected wider = expected;  // each shard is rounded
      if (!on_cpu()) wider.out_bound *= 3;
      const Comparison comparison = compare(whole, wider, {.out = result.out, .lse = result.lse});
      EXPECT_EQ(comparison.mismatch, "") << "world " << world << " interleave " << interleave;
    });
  }
}

TEST(MultiToken, F03_draft_rows_of_a_shard_count_its_own_keys) {
  // World 4, rank 0 of 25 tokens owns 0, 4, ..., 24; 8 draft rows stand at 17 .. 24.
  Problem problem{.spec = make_spec(DType::kBFloat16, 2, 1, 64), .requests = {{8, 7}}};
  problem.spec.causal = false;
  problem.spec.custom_mask = true;
  problem.mask = [](int64_t, int64_t i, int64_t j) { return 4 * j <= 17 + i; };
  problem.q = constant(0);
  on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
    const double counts[] = {5, 5, 5, 6, 6, 6, 6, 7};
    for (int64_t i = 0; i < 8; i++)
      EXPECT_NEAR(std::exp(lse_at(problem, outcome, i, 1)), counts[i], 1e-4);
  });
}

TEST(MultiToken, F04_ranks_without_keys_weigh_nothing_whatever_they_hold) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t dim : {96, 576}) {
    State rank0 = State::filled(1, 2, dim, 0, 0.25f);
    for (size_t d = 0; d < rank0.out.size(); d++) rank0.out[d] = float(normal_of(3, d));
    const State empty = State::filled(1, 2, dim, nan, -kInf);
    const State result = merged({rank0, empty, empty, empty}, DType::kFloat32);
    EXPECT_EQ(result.out, rank0.out);
    EXPECT_EQ(result.lse, rank0.lse);
    const State nothing = merged({empty, empty, empty, empty}, DType::kFloat32);
    EXPECT_EQ(nothing.out, std::vector<float>(2 * dim, 0.0f));
    EXPECT_EQ(nothing.lse, std::vector<float>(2, -INFINITY));
  }
}

TEST(MultiToken, F06_equal_requests_get_equal_bits_at_any_query_length) {
  for (int32_t head_dim : some_of<int32_t>({64, on_cpu() ? 512 : 256}))
    for (int32_t query_len = 1; query_len <= 9; query_len++) {
      Problem problem{.spec = make_spec(DType::kBFloat16, 8, 1, head_dim)};
      for (int b = 0; b < 4; b++) problem.requests.push_back({query_len, 50, 7});
      problem.spec.batch_invariant = true;
      const Expected expected = expect(problem);
      on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
        ASSERT_EQ(verdict(problem, expected, outcome), "");
        for (size_t b = 1; b < 4; b++)
          ASSERT_EQ(rows_of(problem, outcome, b), rows_of(problem, outcome, 0)) << "request " << b;
      });
    }
}

}  // namespace
}  // namespace rapt::test
