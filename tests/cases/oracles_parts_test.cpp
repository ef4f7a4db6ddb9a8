// Cheap oracles 4 and 5: a sink is a factor of the output, and cuts of the keys merge to one pass.
#include "cases/combinations.hpp"
#include "cases/merge_states.hpp"

namespace rapt::test {
namespace {

TEST(Oracles, K29_a_sink_is_an_epilogue) {
  for (Problem problem : combinations(60, 500)) {
    problem.spec.sinks = false;
    Problem sinking = problem;
    sinking.spec.sinks = true;
    const std::vector<float> sinks = values_of(sinking).sinks;
    const int64_t hq = problem.spec.num_query_heads, dvo = problem.spec.dim_vo();
    const double u = unit_roundoff(problem.spec.dtype);
    on_every_backend(problem, [&](const Outcome& outcome, const Backend& backend) {
      const Outcome with = run(sinking, backend);
      for (int64_t t = 0; t < problem.num_tokens(); t++)
        for (int64_t h = 0; h < hq; h++) {
          const double lse = lse_at(problem, outcome, t, h), sink = sinks[h];
          const double weight = 1 / (1 + std::exp(sink - lse));
          ASSERT_NEAR(lse_at(problem, with, t, h), lse == -kInf ? sink : lse - std::log(weight),
                      1e-5);
          for (int64_t d = 0; d < dvo; d++) {
            const double out = outcome.out[(t * hq + h) * dvo + d];
            ASSERT_NEAR(with.out[(t * hq + h) * dvo + d], out * weight, 8 * u + 2e-6);
          }
        }
    });
  }
}

// Keys [0, cut) and [cut, Lk) of one request as problems of their own. The tail keeps distances,
// for both ends of the sequences move together; the head's queries stand `rest` nearer, so that its
// window moves by as much. ALiBi, which counts distances of the head, is left out.
struct Cut {
  Problem head, tail;
};
std::optional<Cut> cut_at(const Problem& whole, int32_t cut) {
  Cut parts{whole, whole};
  const int32_t rest = whole.requests[0].kv_len - cut;
  parts.tail.requests[0].kv_len = rest;
  parts.tail.requests[0].first_key = cut;
  parts.head.requests[0].kv_len = cut;
  AttentionSpec& head = parts.head.spec;
  head.sinks = false;  // the tail has it
  Window band = whole.spec.window;
  if (whole.spec.is_causal()) band.right = band.right == -1 ? 0 : std::min<int64_t>(band.right, 0);
  if (head.kind == AttentionKind::kDecoder) head.causal = false;
  if (band.left != -1) band.left -= rest;
  if (band.right != -1) band.right += rest;
  const bool turned_unlimited = (band.left == -1) != (whole.spec.window.left == -1);
  if (turned_unlimited) return std::nullopt;  // -1 as a literal bound cannot be said
  if (!on_cpu() && std::min(band.left, band.right) < -1) return std::nullopt;  // refused
  head.window = band;
  return parts;
}

TEST(Oracles, any_cut_of_the_keys_merges_to_one_pass) {
  int64_t cuts = 0;
  for (Problem problem : combinations(90, 600)) {
    problem.spec.alibi = false;
    const RequestLengths lengths = problem.requests[0];
    problem.requests = {lengths};
    const Values values = values_of(problem);
    if (problem.spec.sinks) problem.sinks = values.sinks;
    const Expected expected = expect(problem, values);
    for (int32_t cut : {0, 1, lengths.kv_len / 3, lengths.kv_len / 2, lengths.kv_len}) {
      const std::optional<Cut> parts = cut_at(problem, std::min(cut, lengths.kv_len));
      if (!parts) continue;
      cuts++;
      Tensors head(parts->head), tail(parts->tail);
      on_every_backend(problem, [&](const Outcome&, const Backend& backend) {
        const State state = merged(
            {state_of(parts->head, run(head, backend)), state_of(parts->tail, run(tail, backend))},
            problem.spec.dtype, -1, backend);
        // Both parts round to the dtype before they are merged, and the merge rounds once more.
        Expected wider = expected;
        wider.out_bound *= 3;
        wider.lse_bound *= 3;
        const Comparison comparison = compare(problem, wider, {.out = state.out, .lse = state.lse});
        ASSERT_EQ(comparison.mismatch, "") << "cut at " << cut;
      });
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(cuts, on_cpu() ? 200 : sized(20, 1));
}

}  // namespace
}  // namespace rapt::test
