// The CPU backend end to end against the fp64 oracle, at every instruction set and thread count,
// with everything poisoned that must not be read.
#include <gtest/gtest.h>

#include <random>

#include "support/check.hpp"

namespace rapt::test {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : bits_(seed) {}
  int32_t in(int32_t low, int32_t high) {  // both included
    return low + static_cast<int32_t>(bits_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int32_t percent) { return in(1, 100) <= percent; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[in(0, static_cast<int32_t>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 bits_;
};

// Every option of the spec has its chance, alone and with others.
Problem random_problem(uint64_t seed) {
  Draw draw(seed);
  const int32_t kv_heads = draw.one_of({1, 2, 3});
  const int32_t group = draw.one_of({1, 2, 3, 4, 5, 8});
  const int32_t dim = 8 * draw.in(1, 20);
  Problem problem;
  problem.seed = seed;
  problem.spec =
      make_spec(draw.one_of({DType::kFloat32, DType::kFloat16, DType::kBFloat16}), kv_heads * group,
                kv_heads, dim, draw.chance(70) ? 0 : 8 * draw.in(1, 20));
  AttentionSpec& spec = problem.spec;
  spec.page_size = draw.one_of({0, 1, 5, 16, 16, 64, 100});
  spec.causal = draw.chance(70);
  if (draw.chance(30)) spec.window = {draw.in(-1, 40), draw.in(-1, 3)};
  if (draw.chance(20)) spec.softcap = 3;
  spec.alibi = draw.chance(20);
  spec.sinks = draw.chance(20);
  spec.custom_mask = draw.chance(20);
  spec.needs_lse = draw.chance(70);
  spec.batch_invariant = draw.chance(30);
  if (spec.is_paged() && draw.chance(15))
    spec.kv_scales = draw.one_of({KvScales::kPerTensor, KvScales::kPerHead});
  const int32_t num_scales = spec.kv_scales == KvScales::kPerHead ? kv_heads : 1;
  for (int32_t i = 0; i < num_scales && spec.kv_scales != KvScales::kNone; i++) {
    problem.k_scale.push_back(0.5f + 0.25f * static_cast<float>(i));
    problem.v_scale.push_back(1.5f - 0.25f * static_cast<float>(i));
  }
  for (int32_t head = 0; head < spec.num_query_heads; head++) {
    if (spec.alibi) problem.alibi_slopes.push_back(0.02f * static_cast<float>(head + 1));
    if (spec.sinks) problem.sinks.push_back(0.5f * static_cast<float>(head - 1));
  }
  if (spec.custom_mask)
    problem.mask = [](int64_t id, int64_t i, int64_t j) { return (3 * id + 5 * i + j) % 7 != 0; };
  problem.layout.order = draw.one_of({KvLayout::kNHD, KvLayout::kHND});
  if (spec.is_paged() && spec.head_dim_vo != 0) problem.layout.shape = KvShape::kPacked;
  for (int32_t b = draw.in(1, 4); b > 0; b--) {
    const int32_t kv_len = draw.one_of({0, 1, draw.in(1, 40), draw.in(30, 300), draw.in(30, 1200)});
    problem.requests.push_back({draw.one_of({0, 1, 1, 1, 2, 3, draw.in(1, 40)}), kv_len});
  }
  return problem;
}

TEST(CpuBackend, random_problems_match_the_oracle) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 150; seed++) {
    const Problem problem = random_problem(seed);
    ASSERT_EQ(verdict_of_all(problem, &worst), "") << "seed " << seed << ": " << problem.describe();
  }
  RecordProperty("worst_error_over_bound", std::to_string(worst));
  std::printf("worst error over bound: %.3f\n", worst);
}

// Contexts long enough that keys are split over threads, and merged.
TEST(CpuBackend, split_keys_match_the_oracle) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 16; seed++) {
    Draw draw(seed);
    Problem problem = random_problem(1000 + seed);
    AttentionSpec& spec = problem.spec;
    spec.needs_lse = true;
    spec.window = draw.chance(25) ? Window{3000, -1} : Window{};
    spec.batch_invariant = draw.chance(30);
    if (spec.custom_mask) problem.mask = [](int64_t, int64_t i, int64_t j) { return j % 5 != i; };
    problem.requests = {{draw.in(1, 3), draw.in(4000, 6000)}, {0, 7}, {1, draw.in(1, 5000)}};
    if (draw.chance(30)) problem.requests[0].query_len = 24;
    const Outcome outcome = run(problem, {"cpu", std::nullopt, 2});
    EXPECT_EQ(outcome.plan.find(" 0 splits"), std::string::npos) << outcome.plan;
    ASSERT_EQ(verdict_of_all(problem, &worst), "") << "seed " << seed << ": " << problem.describe();
  }
  std::printf("worst error over bound: %.3f\n", worst);
}

// Every row of a request has the same bits alone, among others, and with any number of threads.
TEST(CpuBackend, batch_invariant_rows_keep_their_bits) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Problem together;
    together.spec = make_spec(dtype, 6, 2, 64);
    together.spec.batch_invariant = together.spec.needs_lse = true;
    together.requests = {{1, 3000}, {3, 700}, {40, 90}, {1, 0}, {1, 64}, {2, 5000}};
    for (const CpuIsa isa : host_isas()) {
      const Outcome all = run(together, {"cpu", isa, 3});
      for (size_t b = 0; b < together.requests.size(); b++) {
        Problem alone = together;
        alone.requests = {together.requests[b]};
        alone.requests[0].id = static_cast<int64_t>(b);
        for (const int32_t threads : {1, 2})
          EXPECT_EQ(rows_of(alone, run(alone, {"cpu", isa, threads}), 0), rows_of(together, all, b))
              << to_string(isa) << " request " << b << " threads " << threads;
      }
    }
  }
}

// A query token's bits don't depend on the tokens decoded with it, nor a head's on its neighbours.
TEST(CpuBackend, a_decode_row_keeps_its_bits_beside_others) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    for (const CpuIsa isa : host_isas()) {
      Problem four;
      four.spec = make_spec(dtype, 4, 2, 72);
      four.spec.needs_lse = true;
      four.spec.window = {45, -1};
      four.requests = {{4, 131}};
      Problem last = four;
      last.requests = {{1, 131}};
      // The last query of four: the same values as the only one of a request of one.
      const auto value = [](int64_t, int64_t, int64_t head, int64_t d) {
        return std::sin(static_cast<float>(3 * d + head));
      };
      four.q = last.q = value;
      const Outcome with_others = run(four, {"cpu", isa, 1}), alone = run(last, {"cpu", isa, 1});
      const size_t row = 4 * 72;
      EXPECT_EQ(std::vector<float>(with_others.out.end() - row, with_others.out.end()), alone.out)
          << to_string(isa);
    }
}

}  // namespace
}  // namespace rapt::test
