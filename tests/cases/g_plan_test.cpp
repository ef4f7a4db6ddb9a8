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
TEST(Plan, a_replan_that_fails_leaves_no_work_behind) {
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
      const Tensors old(stale);
      on_every_backend(problem, [&](const Outcome& fresh, const Backend& backend) {
        const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
        Plan plan = attention.plan(old.batch());
        attention.replan(plan, tensors.batch());
        EXPECT_EQ(plan.describe(), fresh.plan);
        EXPECT_EQ(plan.workspace_bytes(), attention.plan(tensors.batch()).workspace_bytes());
        attention.run(plan, tensors.args(plan));
        expect_bits(tensors.collect(), fresh);
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
  Problem first{.spec = make_spec(DType::kFloat32, 8, 2, 64), .requests = kBatches[0]};
  Problem second = first;
  second.requests = kBatches[1];
  Tensors one(first), two(second);
  on_every_backend(first, [&](const Outcome& alone, const Backend& backend) {
    const Outcome other = run(two, backend);
    const Attention attention(context_of(backend), first.spec, {.backend = backend.name});
    const Plan plan_one = attention.plan(one.batch());
    const Plan plan_two = attention.plan(two.batch());
    for (int round = 0; round < 2; round++) {
      attention.run(plan_one, one.args(plan_one));
      attention.run(plan_two, two.args(plan_two));
      expect_bits(one.collect(), alone);
      expect_bits(two.collect(), other);
    }
    std::thread beside([&] { attention.run(plan_two, two.args(plan_two)); });
    attention.run(plan_one, one.args(plan_one));
    beside.join();
    expect_bits(one.collect(), alone);
    expect_bits(two.collect(), other);
  });
}

TEST(Plan, G07_a_mask_of_the_wrong_size_is_refused_with_both_sizes) {
  Problem problem{.spec = make_spec(DType::kFloat32, 4, 2, 64), .requests = {{10, 20}}};
  problem.spec.custom_mask = true;
  Tensors tensors(problem);
  const std::vector<uint8_t> bits(64, 0xff);
  on_every_backend(problem, [&](const Outcome&, const Backend& backend) {
    const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
    const Plan plan = attention.plan(tensors.batch());
    for (int64_t bytes : {(10 * 15 + 7) / 8, (9 * 20 + 7) / 8, 26}) {
      RunArgs args = tensors.args(plan);
      args.custom_mask = TensorView::contiguous(bits.data(), DType::kUInt8, {bytes});
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
  for (DType dtype : {DType::kFloat32, DType::kBFloat16})
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
