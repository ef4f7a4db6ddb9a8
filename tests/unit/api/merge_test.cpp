// merge(): the log-sum-exp of partial states, and the empty state as its identity.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "rapt/rapt.hpp"

namespace rapt {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kTokens = 3, kHeads = 4, kDim = 24, kRows = kTokens * kHeads;

// An fp32 state; row r is token r / kHeads, head r % kHeads. lse is [heads, tokens].
struct State {
  std::vector<float> out = std::vector<float>(kRows * kDim);
  std::vector<float> lse = std::vector<float>(kRows);

  static State random(uint32_t seed) {
    State state;
    std::mt19937 bits(seed);
    std::normal_distribution<float> normal(0, 2);
    for (float& x : state.out) x = normal(bits);
    for (float& x : state.lse) x = normal(bits);
    return state;
  }
  static State empty(float lse, float out) {
    State state;
    std::fill(state.out.begin(), state.out.end(), out);
    std::fill(state.lse.begin(), state.lse.end(), lse);
    return state;
  }
  float& lse_of(int64_t row) { return lse[row % kHeads * kTokens + row / kHeads]; }
  float lse_of(int64_t row) const { return lse[row % kHeads * kTokens + row / kHeads]; }
  TensorView out_view() const {
    return TensorView::contiguous(out.data(), DType::kFloat32, {kTokens, kHeads, kDim});
  }
  TensorView lse_view() const {
    return TensorView::contiguous(lse.data(), DType::kFloat32, {kHeads, kTokens});
  }
};

Context& context() {
  static Context context({.num_threads = 2, .parallel_for = {}, .isa = {}, .log = {}});
  return context;
}

void merge_into(const State& result, const std::vector<const State*>& states) {
  std::vector<TensorView> outs, lses;
  for (const State* state : states) {
    outs.push_back(state->out_view());
    lses.push_back(state->lse_view());
  }
  MergeArgs args;
  args.outs = outs;
  args.lses = lses;
  args.out = result.out_view();
  args.lse = result.lse_view();
  merge(context(), args);
}

State merged(const std::vector<const State*>& states) {
  State result = State::empty(kNan, kNan);
  merge_into(result, states);
  return result;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(Merge, many_states_are_their_weighted_mean_in_fp64) {
  std::vector<State> states;
  for (uint32_t s = 0; s < 7; s++) states.push_back(State::random(s));
  states[3].lse_of(5) = -kInf;
  std::vector<const State*> pointers;
  for (const State& state : states) pointers.push_back(&state);
  const State got = merged(pointers);
  for (int64_t row = 0; row < kRows; row++) {
    double sum = 0;
    for (const State& state : states) sum += std::exp(double{state.lse_of(row)});
    EXPECT_NEAR(got.lse_of(row), std::log(sum), 1e-6);
    for (int64_t d = 0; d < kDim; d++) {
      double want = 0;
      for (const State& state : states)
        want += std::exp(double{state.lse_of(row)}) / sum * state.out[row * kDim + d];
      EXPECT_NEAR(got.out[row * kDim + d], want, 1e-6);
    }
  }
  std::reverse(pointers.begin(), pointers.end());
  const State reversed = merged(pointers);
  for (int64_t i = 0; i < kRows * kDim; i++) EXPECT_NEAR(reversed.out[i], got.out[i], 1e-6);
}

TEST(Merge, the_empty_state_is_the_identity_bit_for_bit) {
  State state = State::random(1);
  state.out[0] = -0.0f;
  state.out[1] = std::numeric_limits<float>::denorm_min();
  state.lse_of(2) = -0.0f;
  for (const float no_key : {-kInf, kInf}) {
    const State empty = State::empty(no_key, kNan);  // what an empty state holds is garbage
    for (const State& got : {merged({&state, &empty}), merged({&empty, &state}),
                             merged({&empty, &state, &empty}), merged({&state})}) {
      EXPECT_TRUE(same_bits(got.out, state.out));
      EXPECT_TRUE(same_bits(got.lse, state.lse));
    }
  }
}

TEST(Merge, nothing_with_nothing_is_nothing) {
  const State a = State::empty(-kInf, kNan), b = State::empty(kInf, kInf);
  const State got = merged({&a, &b});
  for (float x : got.out) EXPECT_EQ(std::bit_cast<uint32_t>(x), 0u);
  for (float x : got.lse) EXPECT_EQ(x, -kInf);
}

TEST(Merge, finite_states_never_make_nan) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const float lse : {-kMax, -1e30f, 0.0f, 1e30f, kMax})
    for (const float other : {-kMax, 0.0f, kMax}) {
      const State a = State::empty(lse, kMax), b = State::empty(other, kMax);
      const State got = merged({&a, &b});
      for (float x : got.out) ASSERT_EQ(x, kMax) << lse << " with " << other;
      for (float x : got.lse) ASSERT_TRUE(std::isfinite(x)) << lse << " with " << other;
    }
}

TEST(Merge, in_place_and_without_lse) {
  State a = State::random(1);
  const State b = State::random(2);
  const State want = merged({&a, &b});
  merge_into(a, {&a, &b});
  EXPECT_TRUE(same_bits(a.out, want.out));
  EXPECT_TRUE(same_bits(a.lse, want.lse));

  const State c = State::random(1), d = State::random(2);
  State out_only = State::empty(7, kNan);
  const TensorView outs[] = {c.out_view(), d.out_view()}, lses[] = {c.lse_view(), d.lse_view()};
  MergeArgs args;
  args.outs = outs;
  args.lses = lses;
  args.out = out_only.out_view();
  merge(context(), args);
  EXPECT_TRUE(same_bits(out_only.out, want.out));
  EXPECT_EQ(out_only.lse[0], 7);
}

// bf16 states into a strided fp16 out, whose gaps stay as they are.
TEST(Merge, element_types_and_strides) {
  std::vector<uint16_t> a(kRows * kDim, 0x3f80), b(kRows * kDim, 0x4040);  // bf16 1 and 3
  State lses = State::empty(0, 0);
  std::vector<uint16_t> out(kRows * kDim * 2, 0xaaaa);
  auto bf16 = [](const std::vector<uint16_t>& data) {
    return TensorView::contiguous(data.data(), DType::kBFloat16, {kTokens, kHeads, kDim});
  };
  const TensorView outs[] = {bf16(a), bf16(b)}, lse_views[] = {lses.lse_view(), lses.lse_view()};
  MergeArgs args;
  args.outs = outs;
  args.lses = lse_views;
  args.out = TensorView::strided(out.data(), DType::kFloat16, {kTokens, kHeads, kDim},
                                 {kHeads * kDim * 2, kDim * 2, 1});
  merge(context(), args);
  for (int64_t row = 0; row < kRows; row++)
    for (int64_t d = 0; d < 2 * kDim; d++)  // 2 in fp16, then the gap
      ASSERT_EQ(out[row * 2 * kDim + d], d < kDim ? 0x4000 : 0xaaaa);
}

}  // namespace
}  // namespace rapt
