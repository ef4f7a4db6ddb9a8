// Public reports, the short records that a CPU can check.
#include <sys/mman.h>

#include "support/check.hpp"
#include "support/element.hpp"

namespace rapt::test {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

TEST(ShortRecords, K01_a_mask_row_all_false_gives_zeros) {
  for (DType dtype : kDTypes)
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
  Problem whole{.spec = make_spec(DType::kFloat32, 8, 8, 64), .requests = {{1, 30}, {7, 20}}};
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
                        outcome.out[(t * 8 + 4 * rank + h) * 64 + d], 1e-5);
    }
  });
}

TEST(ShortRecords, K07_a_mixed_batch_equals_one_request_at_a_time) {
  for (DType dtype : kDTypes) {
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

// A plan cut for one number of threads is run by no other's backend, and the workspace is what the
// plan says: no smaller one is taken (K28).
TEST(ShortRecords, K09_a_plan_runs_only_as_it_was_cut) {
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
    RunArgs args = tensors.args(plan);
    if (args.workspace.bytes > 0) {
      args.workspace.bytes--;
      expect_refused(wide, plan, args);
    }
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
    const Plan plan = attention.plan(tensors.batch());
    for (uint8_t filling : {0x00, 0x7f, 0x3f}) {
      const RunArgs args = tensors.args(plan);
      std::fill_n(static_cast<uint8_t*>(args.workspace.data), args.workspace.bytes, filling);
      attention.run(plan, args);
      EXPECT_EQ(tensors.collect().out, outcome.out);
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
  batch.page_table.device = {DeviceKind::kCuda, 0};
  for (const Backend& backend : backends_for(problem.spec)) {
    SCOPED_TRACE(backend.describe());
    const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
    try {
      attention.plan(batch);  // a fault here would end the program
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    }
  }
  munmap(unreadable, 4096);
}

TEST(ShortRecords, K13_query_lengths_that_are_not_uniform) {
  for (DType dtype : kDTypes) {
    Problem problem{.spec = make_spec(dtype, 8, 2, 64), .requests = {{1, 33}, {2, 20}, {1, 64}}};
    expect_oracle(problem);
  }
}

TEST(ShortRecords, K21_head_dims_off_every_tile) {
  for (DType dtype : kDTypes)
    for (auto [qk, vo] : {std::pair{200, 200},
                          {1, 1},
                          {7, 7},
                          {33, 33},
                          {100, 100},
                          {104, 24},
                          {24, 104},
                          {136, 136},
                          {264, 264},
                          {504, 504},
                          {8, 512},
                          {512, 8}}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, qk, vo), .requests = {{1, 20}, {19, 23}}};
      expect_oracle(problem);
    }
}

TEST(ShortRecords, K22_every_page_size_that_is_accepted_runs) {
  for (int32_t page_size : {1,  2,  3,   5,   7,   8,   15,  16,  17,  24,  31,   32,   33,  48,
                            63, 64, 100, 128, 255, 256, 257, 512, 544, 768, 1000, 1023, 1024}) {
    Problem problem{.spec = make_spec(DType::kBFloat16, 4, 2, 64), .requests = {{1, 70}, {9, 65}}};
    problem.spec.page_size = page_size;
    problem.layout.unused_pages = 1;
    expect_oracle(problem);
  }
}

TEST(ShortRecords, K25_pages_left_of_the_window_may_hold_anything) {
  for (DType dtype : kDTypes)
    for (int32_t query_len : {1, 4, 20}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, 64),
                      .requests = {{query_len, 200}, {query_len, 49}}};
      problem.spec.window = sliding_window(17);
      expect_oracle(problem);
    }
}

TEST(ShortRecords, K26_huge_logits_of_a_single_key_give_its_value) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16})
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

TEST(ShortRecords, K30_every_backend_gives_the_lse_and_asking_changes_nothing) {
  for (DType dtype : kDTypes) {
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
