// Partial states as plain vectors, merged through the public API.
#pragma once

#include <vector>

#include "support/check.hpp"
#include "support/element.hpp"

namespace rapt::test {

// One state: out [tokens, heads, dim] and lse [heads, tokens].
struct State {
  int64_t tokens = 1, heads = 1, dim = 64;
  std::vector<float> out;
  std::vector<float> lse;
  DType dtype = DType::kFloat32;  // out is rounded to it when it is stored

  static State filled(int64_t tokens, int64_t heads, int64_t dim, float value, float lse,
                      DType dtype = DType::kFloat32) {
    return {tokens,
            heads,
            dim,
            std::vector<float>(tokens * heads * dim, value),
            std::vector<float>(tokens * heads, lse),
            dtype};
  }
};

inline State state_of(const Problem& problem, const Outcome& outcome) {
  return {problem.num_tokens(),  problem.spec.num_query_heads,
          problem.spec.dim_vo(), outcome.out,
          outcome.lse,           problem.spec.dtype};
}

// merge() of states of one shape; `into` >= 0 merges in place, into that state's own memory.
inline State merged(const std::vector<State>& states, DType out_dtype, int into = -1,
                    const Backend& backend = {"", std::nullopt, 2, test_device()}) {
  const State& first = states[0];
  const size_t count = first.out.size();
  std::vector<GuardedBuffer> outs, lses;
  std::vector<TensorView> out_views, lse_views;
  auto add = [&](const State* state, DType dtype) {
    outs.emplace_back(count * size_of(dtype));
    lses.emplace_back(first.lse.size() * sizeof(float));
    outs.back().fill(0xa5);
    lses.back().fill(0xa5);
    for (size_t i = 0; state && i < count; i++)
      store(dtype, outs.back().data() + i * size_of(dtype), state->out[i]);
    for (size_t i = 0; state && i < state->lse.size(); i++)
      lses.back().as<float>()[i] = state->lse[i];
    out_views.push_back(
        TensorView::contiguous(outs.back().data(), dtype, {first.tokens, first.heads, first.dim}));
    lse_views.push_back(
        TensorView::contiguous(lses.back().data(), DType::kFloat32, {first.heads, first.tokens}));
  };
  for (const State& state : states) add(&state, state.dtype);
  add(nullptr, out_dtype);
  const size_t target = into >= 0 ? into : states.size();
  Context& context = context_of(backend);
  DeviceMirror mirror(context);
  for (const std::vector<GuardedBuffer>* buffers : {&outs, &lses})
    for (const GuardedBuffer& buffer : *buffers) mirror.put(buffer);
  for (std::vector<TensorView>* views : {&out_views, &lse_views})
    for (TensorView& view : *views) view = mirror.view(view);
  const std::vector<TensorView> in_outs(out_views.begin(), out_views.end() - 1);
  const std::vector<TensorView> in_lses(lse_views.begin(), lse_views.end() - 1);
  merge(context,
        {.outs = in_outs, .lses = in_lses, .out = out_views[target], .lse = lse_views[target]});
  context.synchronize();
  mirror.fetch(outs[target]), mirror.fetch(lses[target]);
  mirror.check_bands();
  State result = first;
  result.dtype = out_views[target].dtype;
  for (size_t i = 0; i < count; i++)
    result.out[i] = load(result.dtype, outs[target].data() + i * size_of(result.dtype));
  result.lse.assign(lses[target].as<float>(), lses[target].as<float>() + first.lse.size());
  EXPECT_TRUE(outs[target].slack_holds(0xa5));
  EXPECT_TRUE(lses[target].slack_holds(0xa5));
  return result;
}

}  // namespace rapt::test
