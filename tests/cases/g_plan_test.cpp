// Public reports, section G: plans, padding rows, workspaces, masks of the wrong size.
#include <thread>

#include "support/check.hpp"

namespace rapt::test {
namespace {

const std::vector<std::vector<RequestLengths>> kBatches = {
    {{1, 40}, {1, 300}, {1, 7}, {1, 64}, {1, 129}},     // decode
    {{40, 40}, {1, 300}, {9, 90}, {1, 64}, {65, 130}},  // mixed
    {{4, 40}, {4, 300}, {4, 7}, {4, 64}, {4, 129}},     // draft tokens
};

void expect_bits(const Outcome& got, const Outcome& want) {
  EXPECT_EQ(got.fault, "");
  EXPECT_EQ(got.out, want.out);
  EXPECT_EQ(got.lse, want.lse);
}

// A batch whose lengths are sound but whose rows are too many for the CPU's plans.
TEST(PlanOnCpu, a_replan_that_fails_leaves_no_work_behind) {
  Problem problem{.spec = make_spec(DType::kFloat32, 1024, 1, 8), .requests = {{1, 3}}};
  problem.spec.page_size = 0;
  Tensors tensors(problem);
  for (const Backend& backend : backends_for(problem.spec)) {
    if (backend.name == "reference") continue;  // it has no such limit
    Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
    Plan plan = attention.plan(tensors.batch());
    const std::vector<int32_t> query_start = {0, 1 << 22};
    Batch batch = tensors.batch();
    batch.query_start = query_start;
    EXPECT_THROW(attention.replan(plan, batch), Error);
    EXPECT_EQ(plan.num_tokens(), 0);
    EXPECT_EQ(plan.workspace_bytes(), 0u);
    attention.run(plan, tensors.args(plan));  // writes nothing
    attention.replan(plan, tensors.batch());
    attention.run(plan, tensors.args(plan));
    expect_bits(tensors.collect(), run(tensors, backend));
  }
}

// A plan that once held other work, larger or smaller, is the plan that a fresh one is.
TEST(Plan, G01_a_reused_plan_keeps_nothing_of_the_step_before) {
  for (const std::vector<RequestLengths>& before : kBatches)
    for (const std::vector<RequestLengths>& batch :
         {kBatches[0], kBatches[2], std::vector<RequestLengths>{{1, 33}, {1, 20}, {1, 5}}}) {
      Problem problem{.spec = make_spec(DType::kBFloat16, 8, 2, 64), .requests = batch};
      Problem stale{.spec = problem.spec, .requests = before};
      Tensors tensors(problem);
      Tensors old(stale);
      on_every_backend(problem, [&](const Outcome& fresh, const Backend& backend) {
        Context& context = context_of(backend);
        const Attention attention(context, problem.spec, {.backend = backend.name});
        Placed placed_old(old, backend), placed(tensors, backend);
        Plan plan = attention.plan(placed_old.batch());
        attention.run(plan, placed_old.args(plan));
        placed_old.collect();
        attention.replan(plan, placed.batch());
        EXPECT_EQ(plan.describe(), fresh.plan);
        EXPECT_EQ(plan.workspace_bytes(), attention.plan(placed.batch()).workspace_bytes());
        attention.run(plan, placed.args(plan));
        expect_bits(placed.collect(), fresh);
      });
    }
}

TEST(Plan, G03_padding_rows_change_nothing_and_are_not_written) {
  for (const std::vector<RequestLengths>& batch : kBatches) {
    Problem real{.spec = make_spec(DType::kBFloat16, 8, 2, 64), .requests = batch};
    Problem padded = real;
    for (int row = 0; row < 3; row++) padded.requests.push_back({0, 0});
    padded.layout.padding_rows = 3;
    padded.layout.table_pad_id = -7;  // the stale table rows of the padding
    const Expected expected = expect(real);
    on_every_backend(padded, [&](const Outcome& outcome, const Backend& backend) {
      EXPECT_EQ(verdict(real, expected, outcome), "");
      expect_bits(outcome, run(real, backend));
    });
  }
}

TEST(Plan, G04_two_plans_in_flight_do_not_disturb_each_other) {
  Problem first{.spec = make_spec(finest_dtype(), 8, 2, 64), .requests = kBatches[0]};
  Problem second = first;
  second.requests = kBatches[1];
  Tensors one(first), two(second);
  on_every_backend(first, [&](const Outcome& alone, const Backend& backend) {
    const Outcome other = run(two, backend);
    const Attention attention(context_of(backend), first.spec, {.backend = backend.name});
    Placed placed_one(one, backend), placed_two(two, backend);
    const Plan plan_one = attention.plan(placed_one.batch());
    const Plan plan_two = attention.plan(placed_two.batch());
    for (int round = 0; round < 2; round++) {
      attention.run(plan_one, placed_one.args(plan_one));
      attention.run(plan_two, placed_two.args(plan_two));
      expect_bits(placed_one.collect(), alone);
      expect_bits(placed_two.collect(), other);
    }
    std::thread beside([&] { attention.run(plan_two, placed_two.args(plan_two)); });
    attention.run(plan_one, placed_one.args(plan_one));
    beside.join();
    expect_bits(placed_one.collect(), alone);
    expect_bits(placed_two.collect(), other);
  });
}

// A plan that is made while another's run is under way, the GPU being kept busy by it, and over
// again: staging memory that two plans shared would be overwritten before it was copied.
TEST(Plan, G04_plans_made_while_runs_are_under_way) {
  const int32_t busy_len = on_cpu() ? 40 : sized(8192, 40);
  Problem busy{.spec = make_spec(DType::kBFloat16, 8, 2, 64), .requests = {{busy_len, busy_len}}};
  busy.q = busy.k = busy.v = constant(0);
  Problem first{.spec = busy.spec, .requests = kBatches[0]}, second = first;
  second.requests = kBatches[2];
  first.seed = second.seed = 2;
  Tensors keeping(busy), one(first), two(second);
  on_every_backend(first, [&](const Outcome& alone, const Backend& backend) {
    const Outcome other = run(two, backend);
    Context& context = context_of(backend);
    const Attention attention(context, first.spec, {.backend = backend.name});
    Placed placed_busy(keeping, backend), placed_one(one, backend), placed_two(two, backend);
    const Plan plan_busy = attention.plan(placed_busy.batch());
    const RunArgs busy_args = placed_busy.args(plan_busy);
    const int rounds = on_cpu() ? 2 : sized(100, 2);
    Plan plan_one = attention.plan(placed_one.batch());
    Plan plan_two = attention.plan(placed_two.batch());
    for (int round = 0; round < rounds; round++) {
      const RunArgs args_one = placed_one.args(plan_one), args_two = placed_two.args(plan_two);
      attention.run(plan_busy, busy_args);
      Plan new_one = attention.plan(placed_one.batch());
      attention.run(new_one, args_one);
      Plan new_two = attention.plan(placed_two.batch());
      attention.run(new_two, args_two);
      expect_bits(placed_one.collect(), alone);
      expect_bits(placed_two.collect(), other);
      plan_one = std::move(new_one), plan_two = std::move(new_two);
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST(Plan, G07_a_mask_of_the_wrong_size_is_refused_with_both_sizes) {
  Problem problem{.spec = make_spec(finest_dtype(), 4, 2, 64), .requests = {{10, 20}}};
  problem.spec.custom_mask = true;
  Tensors tensors(problem);
  const std::vector<uint8_t> bits(64, 0xff);
  on_every_backend(problem, [&](const Outcome&, const Backend& backend) {
    const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
    Placed placed(tensors, backend);
    placed.mirror().put(bits);
    const Plan plan = attention.plan(placed.batch());
    for (int64_t bytes : {(10 * 15 + 7) / 8, (9 * 20 + 7) / 8, 26}) {
      RunArgs args = placed.args(plan);
      args.custom_mask =
          placed.mirror().view(TensorView::contiguous(bits.data(), DType::kUInt8, {bytes}));
      try {
        attention.run(plan, args);
        ADD_FAILURE() << bytes << " bytes were accepted";
      } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("25"), std::string::npos) << text;
        EXPECT_NE(text.find(std::to_string(bytes)), std::string::npos) << text;
      }
    }
  });
}

TEST(Plan, G07_masks_of_several_requests_start_at_any_bit) {
  for (DType dtype : dtypes())
    for (bool causal : {false, true}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, 64),
                      .requests = {{3, 7}, {1, 13}, {10, 20}, {0, 5}, {2, 0}, {33, 65}, {1, 1}}};
      problem.spec.causal = causal;
      problem.spec.custom_mask = true;
      expect_oracle(problem);
    }
}

}  // namespace
}  // namespace rapt::test
