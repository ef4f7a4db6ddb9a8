// Public reports, section E: windows, soft caps, sinks, and options that must not be dropped.
#include "cases/merge_states.hpp"
#include "support/element.hpp"
#include "support/error_of.hpp"

namespace rapt::test {
namespace {

// Keys that the contract lets query i see: counted one by one.
int64_t count_visible(const Problem& problem, size_t b, int64_t i) {
  int64_t count = 0;
  const RequestLengths& lengths = problem.requests[b];
  for (int64_t j = 0; j < lengths.kv_len; j++)
    count += position_sees(problem.spec, i, j, lengths.query_len, lengths.kv_len);
  return count;
}

void expect_counts(const Problem& problem, const Outcome& outcome) {
  int64_t token = 0;
  for (size_t b = 0; b < problem.requests.size(); b++)
    for (int64_t i = 0; i < problem.requests[b].query_len; i++, token++) {
      const int64_t count = count_visible(problem, b, i);
      for (int64_t h = 0; h < problem.spec.num_query_heads; h++) {
        const double lse = lse_at(problem, outcome, token, h);
        if (count == 0)
          ASSERT_EQ(lse, -kInf) << "request " << b << " query " << i;
        else
          ASSERT_NEAR(std::exp(lse), count, 1e-4) << "request " << b << " query " << i;
      }
    }
}

TEST(WindowSinks, E01_a_window_of_w_tokens_includes_the_query) {
  for (int32_t window : {1, 2, 4, 16})
    for (RequestLengths lengths : {RequestLengths{16, 16}, {1, 16}, {3, 16}, {5, 9}}) {
      Problem problem{.spec = make_spec(finest_dtype(), 4, 2, 64), .requests = {lengths}};
      problem.spec.page_size = 4;
      problem.spec.window = sliding_window(window);
      problem.q = constant(0);
      problem.k = constant(0);
      const Values values = values_of(problem);
      on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
        for (int64_t i = 0; i < lengths.query_len; i++) {
          const int64_t p = i + lengths.kv_len - lengths.query_len;
          for (int64_t h = 0; h < 4; h++) {
            EXPECT_NEAR(std::exp(lse_at(problem, outcome, i, h)), std::min<int64_t>(p + 1, window),
                        1e-4);
            for (int64_t d = 0; d < 64 && window == 1; d++)
              EXPECT_EQ(outcome.out[(i * 4 + h) * 64 + d], values.v[(p * 2 + h / 2) * 64 + d]);
          }
        }
      });
    }
}

TEST(WindowSinks, E02_bounds_of_minus_one_are_open_and_other_negatives_literal) {
  for (Window window : {Window{-1, -1}, {-1, 0}, {32, 0}, {31, 0}, {7, -8}, {0, 0}, {0, -1}})
    for (bool causal : {false, true})
      for (std::vector<RequestLengths> batch :
           {std::vector<RequestLengths>{{32, 32}}, {{1, 32}, {5, 32}}}) {
        Problem problem{.spec = make_spec(DType::kBFloat16, 2, 1, 64), .requests = batch};
        problem.spec.window = window;
        problem.spec.causal = causal;
        problem.q = constant(0);
        if (!on_cpu() && std::min(window.left, window.right) < -1) {  // refused, not widened
          const std::string error = error_of(ErrorCode::kUnsupported, [&] {
            Attention(context_of({.name = "", .device = test_device()}), problem.spec);
          });
          EXPECT_NE(error.find("window is (7, -8)"), std::string::npos) << error;
          continue;
        }
        on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
          expect_counts(problem, outcome);
          if (window != Window{7, -8}) return;
          for (float out : outcome.out) ASSERT_EQ(out, 0);
        });
      }
}

TEST(WindowSinks, E02_three_ways_to_say_causal_give_the_same_result) {
  Problem problem{.spec = make_spec(finest_dtype(), 2, 1, 64), .requests = {{32, 32}}};
  on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
    for (Window window : {Window{-1, 0}, {32, 0}, {31, 0}}) {
      Problem other = problem;
      other.spec.causal = false;
      other.spec.window = window;
      const Outcome same = run(other, backend);
      EXPECT_EQ(same.out, outcome.out);
      EXPECT_EQ(same.lse, outcome.lse);
    }
  });
}

// Every option, switched on alone, changes the result; that it changes it rightly is the oracle's
// part (every test of a problem with that option).
TEST(WindowSinks, E04_an_accepted_option_changes_the_result) {
  const Problem plain{.spec = make_spec(DType::kBFloat16, 4, 2, 64),
                      .requests = {{1, 40}, {7, 30}}};
  std::vector<std::pair<const char*, Problem>> options;
  auto add = [&](const char* name, auto change) {
    options.emplace_back(name, plain);
    change(options.back().second);
  };
  add("softcap", [](Problem& p) { p.spec.softcap = 0.5f; });
  add("window", [](Problem& p) { p.spec.window = {8, -1}; });
  add("causal", [](Problem& p) { p.spec.causal = false; });
  add("scale", [](Problem& p) { p.spec.scale = 0.5f; });
  add("alibi", [](Problem& p) { p.spec.alibi = true; });
  add("sinks", [](Problem& p) { p.spec.sinks = true; });
  add("custom_mask", [](Problem& p) { p.spec.custom_mask = true; });
  add("k_scale", [](Problem& p) {
    p.spec.kv_scales = KvScales::kPerTensor;
    p.k_scale = {2};
    p.v_scale = {1};
  });
  add("v_scale", [](Problem& p) {
    p.spec.kv_scales = KvScales::kPerHead;
    p.k_scale = {1, 1};
    p.v_scale = {2, 1};
  });
  for (const auto& [name, problem] : options) {
    // Both backends of the CPU have every one of these options, on every instruction set: a refusal
    // would be one dropped. GPUs' refuse scales, and say so.
    const bool has = on_cpu() || problem.spec.kv_scales == KvScales::kNone;
    EXPECT_EQ(backends_for(problem.spec).size(), has ? backends_for(plain.spec).size() : 0) << name;
    for (const Backend& backend : backends_for(plain.spec)) {
      if (!has) {
        const std::string error = error_of(ErrorCode::kUnsupported, [&] {
          Attention(context_of(backend), problem.spec, {.backend = backend.name});
        });
        EXPECT_NE(error.find("scale"), std::string::npos) << error;
        continue;
      }
      SCOPED_TRACE(backend.describe() + " " + name);
      const Outcome without = run(plain, backend), with = run(problem, backend);
      EXPECT_EQ(with.fault, "");
      EXPECT_NE(with.out, without.out);
      EXPECT_EQ(verdict(problem, expect(problem), with), "");
    }
  }
}

TEST(WindowSinks, E04_tensors_of_options_the_spec_lacks_are_refused) {
  const DType dtype = finest_dtype();
  Problem with{.spec = make_spec(dtype, 4, 2, 64), .requests = {{2, 20}}};
  with.spec.alibi = with.spec.sinks = with.spec.custom_mask = true;
  with.spec.kv_scales = KvScales::kPerTensor;
  Problem without{.spec = make_spec(dtype, 4, 2, 64), .requests = with.requests};
  without.spec.needs_lse = false;
  for (const Backend& backend : backends_for(without.spec)) {
    SCOPED_TRACE(backend.describe());
    Tensors options(with), tensors(without);
    const Attention attention(context_of(backend), without.spec, {.backend = backend.name});
    Placed placed_options(options, backend), placed(tensors, backend);
    const Plan plan = attention.plan(placed.batch());
    const RunArgs given = placed_options.args(plan);
    for (TensorView RunArgs::*option :
         {&RunArgs::lse, &RunArgs::alibi_slopes, &RunArgs::sinks, &RunArgs::custom_mask,
          &RunArgs::k_scale, &RunArgs::v_scale}) {
      RunArgs args = placed.args(plan);
      ASSERT_TRUE((given.*option).has_value());
      args.*option = given.*option;
      EXPECT_THROW(attention.run(plan, args), Error);
      for (float out : placed.collect().out)  // nothing was written
        ASSERT_EQ(out, load(dtype, "\xa5\xa5\xa5\xa5"));
    }
  }
}

TEST(WindowSinks, E05_a_sink_joins_the_denominator_once) {
  for (DType dtype : dtypes()) {
    Problem problem{.spec = make_spec(dtype, 4, 2, 64), .requests = {{1, 7}}};
    problem.spec.sinks = true;
    problem.sinks = std::vector<float>(4, 0);
    problem.k = constant(0);
    problem.v = constant(1);
    auto all_equal = [&](double out, double lse) {
      return [=](const Outcome& outcome, const Backend&) {
        for (float value : outcome.out) ASSERT_NEAR(value, out, 1e-6);
        for (float value : outcome.lse) ASSERT_NEAR(value, lse, 1e-6);
      };
    };
    on_every_backend(problem, all_equal(0.875, std::log(8.0)));
    problem.spec.softcap = 5;
    on_every_backend(problem, all_equal(0.875, std::log(8.0)));
    problem.spec.window = {6, 0};  // of many keys
    problem.requests = {{1, 4096}};
    on_every_backend(problem, all_equal(0.875, std::log(8.0)));
    problem.requests = {{1, 0}, {3, 0}};
    on_every_backend(problem, all_equal(0, 0));
  }
}

// The mask shows the last keys alone, which no plan can know: all splits but the last are empty, or
// all of them.
TEST(WindowSinks, E05_a_sink_joins_once_however_many_splits_are_empty) {
  const int32_t kv_len = sized(8192, 2048);
  for (DType dtype : dtypes())
    for (int32_t query_len : {1, 40})
      for (int num_visible : {7, 0})
        for (float softcap : some_of<float>({0, 5})) {
          Problem problem{.spec = make_spec(dtype, 4, 2, 64), .requests = {{query_len, kv_len}}};
          problem.spec.softcap = softcap;
          problem.spec.causal = false;
          problem.spec.sinks = problem.spec.custom_mask = true;
          problem.sinks = std::vector<float>(4, -0.5f);
          problem.mask = [=](int64_t, int64_t, int64_t j) { return j >= kv_len - num_visible; };
          problem.k = constant(0);
          problem.v = constant(1);
          Tensors tensors(problem);
          const double denominator = num_visible + std::exp(-0.5);  // a sink twice: far off
          bool cut = false;
          auto claim = [&](const Outcome& outcome) {
            for (float value : outcome.out)
              ASSERT_NEAR(value, num_visible / denominator, num_visible == 0 ? 0 : 4e-3);
            for (float value : outcome.lse) ASSERT_NEAR(value, std::log(denominator), 1e-6);
            cut |= has_splits(outcome);
          };
          on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
            claim(outcome);
            for (int32_t num_threads : {4, 8}) {
              if (!on_cpu()) continue;
              claim(run(tensors, {backend.name, backend.isa, num_threads}));
            }
          });
          EXPECT_TRUE(cut) << "no plan had splits";
        }
}

// The limits of large sinks: one takes all the weight, the other none.
TEST(WindowSinks, infinite_sinks_take_all_the_weight_or_none) {
  for (DType dtype : dtypes())
    for (RequestLengths lengths :
         {RequestLengths{1, 7}, {40, 200}, {2, 0}, {1, sized(8192, 2600)}}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, 64), .requests = {lengths}};
      problem.spec.sinks = true;
      constexpr float kInfinite = std::numeric_limits<float>::infinity();
      problem.sinks = {kInfinite, -kInfinite, 0, kInfinite};
      Problem without = problem;
      without.spec.sinks = false;
      on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
        const Outcome plain = run(without, backend);
        for (int64_t i = 0; i < lengths.query_len; i++) {
          for (int64_t head : {0, 3}) {
            ASSERT_EQ(lse_at(problem, outcome, i, head), kInf);
            for (int64_t d = 0; d < 64; d++) ASSERT_EQ(outcome.out[(i * 4 + head) * 64 + d], 0);
          }
          ASSERT_EQ(lse_at(problem, outcome, i, 1), lse_at(problem, plain, i, 1));
          for (int64_t d = 0; d < 64; d++)
            ASSERT_EQ(outcome.out[(i * 4 + 1) * 64 + d], plain.out[(i * 4 + 1) * 64 + d]);
        }
      });
    }
}

// Weights that fp32 has not, relative to a row without keys or to the sink.
TEST(WindowSinks, E05_sinks_far_from_all_scores) {
  for (DType dtype : dtypes())
    for (RequestLengths lengths :
         {RequestLengths{1, 0}, {40, 0}, {40, 20}, {1, 7}, {1, sized(8192, 2600)}}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, 64), .requests = {lengths}};
      problem.spec.sinks = true;
      problem.sinks = {-200, 200, -1000, 1000};
      expect_oracle(problem);
    }
}

// Finite, but not in units of log2: they count as themselves.
TEST(WindowSinks, the_largest_finite_sinks_are_their_own_lse) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (DType dtype : dtypes())
    for (RequestLengths lengths :
         {RequestLengths{1, 7}, {40, 200}, {2, 0}, {40, 0}, {1, sized(8192, 2600)}}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, 64), .requests = {lengths}};
      problem.spec.sinks = true;
      problem.sinks = {3e38f, -kLargest, 0, kLargest};
      Problem without = problem;
      without.spec.sinks = false;
      on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
        const Outcome plain = run(without, backend);
        for (int64_t i = 0; i < lengths.query_len; i++) {
          ASSERT_EQ(lse_at(problem, outcome, i, 0), 3e38f);
          ASSERT_EQ(lse_at(problem, outcome, i, 3), kLargest);
          ASSERT_EQ(lse_at(problem, outcome, i, 1),
                    lengths.kv_len ? lse_at(problem, plain, i, 1) : -kLargest);
          for (int64_t d = 0; d < 64; d++) ASSERT_EQ(outcome.out[(i * 4 + 3) * 64 + d], 0);
        }
      });
    }
}

TEST(WindowSinks, E05_a_sink_given_to_one_part_of_a_cut_counts_once) {
  Problem part{.spec = make_spec(finest_dtype(), 4, 2, 64), .requests = {{1, 3}}};
  part.k = constant(0);
  part.v = constant(1);
  Problem sinking = part;
  sinking.spec.sinks = true;
  sinking.sinks = std::vector<float>(4, 0);
  sinking.requests = {{1, 4}};
  on_every_backend(part, [&](const Outcome& outcome, const Backend& backend) {
    const State result = merged({state_of(part, outcome), state_of(sinking, run(sinking, backend))},
                                DType::kFloat32);
    // The part with the sink is 4 / 5, rounded.
    for (float value : result.out) ASSERT_NEAR(value, 0.875, 1e-6 + unit_roundoff(part.spec.dtype));
  });
}

}  // namespace
}  // namespace rapt::test
