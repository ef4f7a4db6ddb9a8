// Public reports, the short records that this far can be checked.
#include <sys/mman.h>

#include "support/check.hpp"
#include "support/element.hpp"
#include "support/error_of.hpp"

namespace rapt::test {
namespace {

TEST(ShortRecords, K01_a_mask_row_all_false_gives_zeros) {
  for (DType dtype : dtypes())
    for (int32_t batch : {1, 3, 9}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, 64)};
      for (int32_t b = 0; b < batch; b++) problem.requests.push_back({b % 2 ? 1 : 6, 20});
      problem.spec.custom_mask = true;
      problem.spec.causal = false;
      problem.mask = [](int64_t id, int64_t i, int64_t) { return (id + i) % 2 == 1; };
      const Expected expected = expect(problem);
      on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
        EXPECT_EQ(lse_at(problem, outcome, 0, 0), -kInf);
        EXPECT_EQ(outcome.out[0], 0);
        EXPECT_EQ(verdict(problem, expected, outcome), "");
      });
    }
}

TEST(ShortRecords, K05_alibi_slopes_belong_to_the_callers_heads) {
  Problem whole{.spec = make_spec(finest_dtype(), 8, 8, 64), .requests = {{1, 30}, {7, 20}}};
  whole.spec.alibi = true;
  for (int h = 1; h <= 8; h++) whole.alibi_slopes.push_back(std::exp2(float(-h)));
  const Values values = values_of(whole);
  on_every_backend(whole, [&](const Outcome& outcome, const Backend& backend) {
    for (int64_t rank = 0; rank < 2; rank++) {
      Problem half = whole;
      half.spec.num_query_heads = half.spec.num_kv_heads = 4;
      half.alibi_slopes.assign(whole.alibi_slopes.begin() + 4 * rank,
                               whole.alibi_slopes.begin() + 4 * rank + 4);
      auto of_rank = [&](const std::vector<float>& rows, const std::vector<int64_t>& start) {
        return [&rows, &start, rank](int64_t id, int64_t t, int64_t h, int64_t d) {
          return rows[((start[id] + t) * 8 + 4 * rank + h) * 64 + d];
        };
      };
      half.q = of_rank(values.q, values.query_start);
      half.k = of_rank(values.k, values.kv_start);
      half.v = of_rank(values.v, values.kv_start);
      const Outcome part = run(half, backend);
      for (int64_t t = 0; t < 8; t++)
        for (int64_t h = 0; h < 4; h++)
          for (int64_t d = 0; d < 64; d++)
            ASSERT_NEAR(part.out[(t * 4 + h) * 64 + d],
                        outcome.out[(t * 8 + 4 * rank + h) * 64 + d],
                        on_cpu() ? 1e-5 : 4 * unit_roundoff(whole.spec.dtype));
    }
  });
}

TEST(ShortRecords, K07_a_mixed_batch_equals_one_request_at_a_time) {
  for (DType dtype : dtypes()) {
    Problem mixed{.spec = make_spec(dtype, 8, 2, 64),
                  .requests = {{1, 40}, {30, 30}, {1, 7}, {5, 90}, {1, 200}}};
    mixed.spec.batch_invariant = true;
    on_every_backend(mixed, [&](const Outcome& outcome, const Backend& backend) {
      for (size_t b = 0; b < mixed.requests.size(); b++) {
        Problem single = mixed;
        single.requests = {mixed.requests[b]};
        single.requests[0].id = mixed.id(b);
        ASSERT_EQ(rows_of(single, run(single, backend), 0), rows_of(mixed, outcome, b));
      }
    });
  }
}

// The workspace is what the plan says: no smaller one is taken, and nothing written.
TEST(ShortRecords, K28_the_workspace_is_as_large_as_the_plan_says) {
  Problem problem{.spec = make_spec(DType::kBFloat16, 8, 2, 64), .requests = {{1, 4096}, {1, 7}}};
  Tensors tensors(problem);
  bool needed = false;
  on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
    const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
    Placed placed(tensors, backend);
    const Plan plan = attention.plan(placed.batch());
    RunArgs args = placed.args(plan);
    if (args.workspace.bytes == 0) return;
    needed = true;
    args.workspace.bytes--;
    EXPECT_THROW(attention.run(plan, args), Error);
    for (float out : placed.collect().out) ASSERT_EQ(out, load(DType::kBFloat16, "\xa5\xa5"));
    args.workspace.bytes++;
    attention.run(plan, args);
    EXPECT_EQ(placed.collect().out, outcome.out);
  });
  EXPECT_TRUE(needed) << "no plan had a workspace";
}

// A plan cut for one number of threads is run by no other's backend.
TEST(ShortRecordsOnCpu, K09_a_plan_runs_only_as_it_was_cut) {
  Problem problem{.spec = make_spec(DType::kBFloat16, 8, 2, 64), .requests = {{1, 4096}, {1, 7}}};
  Tensors tensors(problem);
  auto expect_refused = [&](const Attention& attention, const Plan& plan, const RunArgs& args) {
    EXPECT_THROW(attention.run(plan, args), Error);
    for (float out : tensors.collect().out)  // nothing was written
      ASSERT_EQ(out, load(DType::kBFloat16, "\xa5\xa5"));
  };
  for (const Backend& backend : backends_for(problem.spec)) {
    SCOPED_TRACE(backend.describe());
    const SelectOptions options{.backend = backend.name};
    const Attention wide(context_of({backend.name, backend.isa, 8}), problem.spec, options);
    const Attention narrow(context_of({backend.name, backend.isa, 1}), problem.spec, options);
    const Plan plan = wide.plan(tensors.batch());
    expect_refused(narrow, plan, tensors.args(plan));
    wide.run(plan, tensors.args(plan));
    EXPECT_EQ(verdict(problem, expect(problem), tensors.collect()), "");
  }
}

TEST(ShortRecords, K10_what_the_workspace_held_does_not_matter) {
  Problem problem{.spec = make_spec(DType::kBFloat16, 8, 2, 64),
                  .requests = {{1, 900}, {30, 300}, {1, 7}}};
  Tensors tensors(problem);
  on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {  // 0xFF
    const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
    Placed placed(tensors, backend);
    const Plan plan = attention.plan(placed.batch());
    for (uint8_t filling : {0x00, 0x7f, 0x3f}) {
      RunArgs args = placed.args(plan);
      GuardedBuffer workspace(plan.workspace_bytes(), kWorkspaceAlignment);
      workspace.fill(filling);
      placed.mirror().put(workspace);
      args.workspace.data = placed.mirror().address(workspace.data());
      attention.run(plan, args);
      EXPECT_EQ(placed.collect().out, outcome.out);
    }
  });
}

// A table on another device: planning has only the lengths to go by.
TEST(ShortRecords, K11_planning_reads_no_device_memory) {
  Problem problem{.spec = make_spec(DType::kBFloat16, 8, 2, 64), .requests = {{1, 40}, {9, 33}}};
  Tensors tensors(problem);
  void* unreadable = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(unreadable, MAP_FAILED);
  Batch batch = tensors.batch();
  batch.page_table.data = unreadable;
  for (const Backend& backend : backends_for(problem.spec)) {
    SCOPED_TRACE(backend.describe());
    const Device device = context_of(backend).tensor_device();
    batch.page_table.device = on_cpu() ? Device{DeviceKind::kCuda, 0} : device;
    const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
    try {
      const Plan plan = attention.plan(batch);  // a fault here would end the program
      EXPECT_EQ(plan.num_tokens(), 10);
      EXPECT_FALSE(on_cpu());
    } catch (const Error& error) {
      EXPECT_TRUE(on_cpu()) << error.what();
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    }
  }
  munmap(unreadable, 4096);
}

TEST(ShortRecords, K13_query_lengths_that_are_not_uniform) {
  for (DType dtype : dtypes()) {
    Problem problem{.spec = make_spec(dtype, 8, 2, 64), .requests = {{1, 33}, {2, 20}, {1, 64}}};
    expect_oracle(problem);
  }
}

TEST(ShortRecords, K21_head_dims_off_every_tile) {
  std::vector<std::pair<int, int>> dims = some_of<std::pair<int, int>>(
      {{104, 24}, {200, 200}, {8, 256}, {24, 104}, {256, 8}, {136, 136}, {40, 40}, {248, 248}}, 1);
  if (on_cpu())
    dims.insert(dims.end(),
                {{1, 1}, {7, 7}, {33, 33}, {100, 100}, {264, 264}, {504, 504}, {8, 512}, {512, 8}});
  for (DType dtype : dtypes())
    for (auto [qk, vo] : dims) {
      Problem problem{.spec = make_spec(dtype, 4, 2, qk, vo), .requests = {{1, 20}, {19, 23}}};
      expect_oracle(problem);
    }
}

// Those that a GPU has not are refused before anything is written.
TEST(ShortRecords, K21_head_dims_that_a_gpu_has_not_are_refused_by_name) {
  for (const int32_t dim : {1, 7, 33, 100, 264, 504, 512}) {
    const AttentionSpec spec = make_spec(DType::kBFloat16, 4, 2, dim);
    if (on_cpu()) {
      EXPECT_FALSE(backends_for(spec).empty()) << dim;
      continue;
    }
    const std::string error = error_of(ErrorCode::kUnsupported, [&] {
      Attention(context_of({.name = "", .device = test_device()}), spec);
    });
    EXPECT_NE(error.find("head_dim"), std::string::npos) << error;
  }
}

TEST(ShortRecords, K22_every_page_size_that_is_accepted_runs) {
  const std::vector<int32_t> sizes = {64,  544, 3,   768, 1,   2,   5,    7,    8,
                                      15,  16,  17,  24,  31,  32,  33,   48,   63,
                                      100, 128, 255, 256, 257, 512, 1000, 1023, 1024};
  for (int32_t page_size : some_of(sizes, 1)) {
    Problem problem{.spec = make_spec(DType::kBFloat16, 4, 2, 64), .requests = {{1, 70}, {9, 65}}};
    problem.spec.page_size = page_size;
    problem.layout.unused_pages = 1;
    expect_oracle(problem);
  }
}

TEST(ShortRecords, K25_pages_left_of_the_window_may_hold_anything) {
  for (DType dtype : dtypes())
    for (int32_t query_len : {1, 4, 20}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, 64),
                      .requests = {{query_len, 200}, {query_len, 49}}};
      problem.spec.window = sliding_window(17);
      expect_oracle(problem);
    }
}

TEST(ShortRecords, K26_huge_logits_of_a_single_key_give_its_value) {
  for (DType dtype : {on_cpu() ? DType::kFloat32 : DType::kBFloat16, DType::kBFloat16})
    for (int32_t num_queries : {1, 5, 20}) {
      Problem problem{.spec = make_spec(dtype, 2, 1, 64), .requests = {{num_queries, 1}}};
      problem.spec.causal = false;
      problem.q = problem.k = constant(133120);
      const Values values = values_of(problem);
      on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
        for (size_t n = 0; n < outcome.out.size(); n++) ASSERT_EQ(outcome.out[n], values.v[n % 64]);
      });
    }
}

// Equal scores of any size count their keys, also where there are several steps of keys, splits,
// and logits whose rounding alone is more than an exponent bears.
TEST(ShortRecords, K26_equal_logits_of_any_size_give_the_mean) {
  for (DType dtype : dtypes())
    for (float q : {1.0f, 100.0f, 3001.0f, 40001.0f, -40001.0f})
      for (const int32_t num_queries : {1, 40}) {
        const int32_t kv_len = sized(4096, 600);
        Problem problem{.spec = make_spec(dtype, 2, 1, 64), .requests = {{num_queries, kv_len}}};
        problem.spec.causal = false;
        problem.q = constant(q);
        problem.k = constant(std::abs(q));
        problem.v = [](auto, int64_t j, auto, auto) { return j % 2 ? 3.0f : 1.0f; };
        const double rounded = round_to(dtype, q), logit = 8 * rounded * std::abs(rounded);
        on_every_backend(problem, [&](const Outcome& outcome, const Backend&) {
          for (float x : outcome.out) ASSERT_NEAR(x, 2, 2 * unit_roundoff(dtype) + 1e-5) << q;
          for (float x : outcome.lse)
            ASSERT_NEAR(x, logit + std::log(kv_len), 1e-4 + 1e-6 * std::abs(logit)) << q;
        });
      }
}

TEST(ShortRecords, K30_every_backend_gives_the_lse_and_asking_changes_nothing) {
  for (DType dtype : dtypes()) {
    Problem with{.spec = make_spec(dtype, 8, 2, 64), .requests = {{1, 300}, {20, 40}}};
    Problem without = with;
    without.spec.needs_lse = false;
    ASSERT_EQ(backends_for(with.spec).size(), backends_for(without.spec).size());
    on_every_backend(with, [&](const Outcome& outcome, const Backend& backend) {
      EXPECT_EQ(run(without, backend).out, outcome.out);
    });
  }
}

}  // namespace
}  // namespace rapt::test
