// Cheap oracles 6 to 8: poison, sensitivity of every option, independence of rows.
#include "cases/combinations.hpp"

namespace rapt::test {
namespace {

// NaN in every slot, page, layer and row that must not be read gives the bits of zeros there. (That
// nothing astray is written is part of every run of the suite.)
TEST(Oracles, poison_changes_no_bit) {
  for (Problem problem : combinations(45, 700)) {
    Problem clean = problem;
    clean.layout.unread_k = clean.layout.unread_v = 0;
    Tensors tensors(clean);
    on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
      const Outcome want = run(tensors, backend);
      ASSERT_EQ(outcome.out, want.out);
      ASSERT_EQ(outcome.lse, want.lse);
    });
  }
}

TEST(Oracles, every_option_changes_the_result) {
  // Each change has kernels of its own.
  for (Problem problem : combinations(on_cpu() ? 45 : 1, 800)) {
    // Two keys at least for some row, in plain sight.
    problem.requests = {{1, 37}, {12, 20}};
    problem.spec.window = {};
    if (problem.spec.kind == AttentionKind::kDecoder) problem.spec.causal = true;
    std::vector<Problem> changed;
    auto change = [&](auto edit) { edit(changed.emplace_back(problem)); };
    change([](Problem& p) { p.seed += 1000; });
    change([](Problem& p) { p.spec.scale = 2 * p.spec.resolved_scale(); });
    change([](Problem& p) { p.spec.softcap = p.spec.softcap == 0 ? 0.7f : 0; });
    change([](Problem& p) { p.spec.window = {3, -1}; });
    change([](Problem& p) { p.spec.alibi = !p.spec.alibi; });
    change([](Problem& p) { p.spec.sinks = !p.spec.sinks; });
    change([](Problem& p) { p.spec.custom_mask = !p.spec.custom_mask; });
    if (problem.spec.kind == AttentionKind::kDecoder)
      change([](Problem& p) { p.spec.causal = false; });
    if (problem.spec.is_paged()) {
      change([](Problem& p) {
        p.spec.kv_scales = KvScales::kPerTensor;
        p.k_scale = {2};
        p.v_scale = {1};
      });
      change([](Problem& p) {
        p.spec.kv_scales = KvScales::kPerHead;
        p.k_scale.assign(p.spec.num_kv_heads, 1);
        p.v_scale.assign(p.spec.num_kv_heads, 0.5f);
      });
    }
    on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
      for (const Problem& other : some_of(changed, 2)) {
        try {
          ASSERT_NE(run(other, backend).out, outcome.out) << other.describe();
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
        }
      }
    });
  }
}

// The same requests in another order, without the first, and with strangers between.
TEST(Oracles, other_requests_do_not_change_a_row) {
  for (bool invariant : {true, false})
    for (Problem problem : combinations(36, invariant ? 900 : 1000)) {
      problem.spec.batch_invariant = invariant;
      for (size_t b = 0; b < problem.requests.size(); b++)
        problem.requests[b].id = static_cast<int64_t>(b);
      std::vector<Problem> batches(3, problem);
      std::reverse(batches[0].requests.begin(), batches[0].requests.end());
      batches[1].requests.erase(batches[1].requests.begin());
      batches[2].requests.insert(batches[2].requests.begin() + 1, {17, 23, 100});
      batches[2].requests.push_back({1, 150, 101});
      const Expected expected = expect(problem);
      std::vector<Tensors> tensors(batches.begin(), batches.end());
      on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
        for (size_t n = 0; n < batches.size(); n++) {
          const Outcome other = run(tensors[n], backend);
          ASSERT_EQ(other.fault, "");
          for (size_t b = 0; b < batches[n].requests.size(); b++) {
            const int64_t id = batches[n].requests[b].id;
            if (id >= 100) continue;
            const std::vector<float> got = rows_of(batches[n], other, b);
            const std::vector<float> want = rows_of(problem, outcome, id);
            if (invariant) {
              ASSERT_EQ(got, want) << "request " << id << " in batch " << n;
              continue;
            }
            const double bound = 2 * std::max(expected.out_bound, expected.lse_bound);
            for (size_t i = 0; i < got.size(); i++)
              ASSERT_TRUE(got[i] == want[i] || std::abs(got[i] - want[i]) <= bound)
                  << "request " << id << ": " << got[i] << " and " << want[i];
          }
        }
      });
    }
}

}  // namespace
}  // namespace rapt::test
