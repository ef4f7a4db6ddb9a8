// The merge of states that are tensors of their own, on the emulator, against weights in double
// precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "cache_kernels.hpp"
#include "core/float16.hpp"

namespace rapt::emulator {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kTokens = 3, kHeads = 2, kRows = kTokens * kHeads;

size_t size_of(Element element) {
  return element == Element::kFloat32 ? 4 : 2;
}
float load(Element element, const unsigned char* at) {
  float value;
  if (element == Element::kFloat32) return std::memcpy(&value, at, 4), value;
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return element == Element::kFloat16 ? float16_to_float(bits) : bfloat16_to_float(bits);
}
void store(Element element, unsigned char* at, float value) {
  if (element == Element::kFloat32) {
    std::memcpy(at, &value, 4);
    return;
  }
  const uint16_t bits =
      element == Element::kFloat16 ? float_to_float16(value) : float_to_bfloat16(value);
  std::memcpy(at, &bits, 2);
}

struct States {
  int num_states = 2, head_dim = 72;
  Element from = Element::kBFloat16, to = Element::kBFloat16;
  // Elements between rows of outs and of out.
  int padding = 0;
  int in_place = -1;  // the state whose tensors take the result
};

class Merged {
 public:
  template <typename LseOf>
  Merged(const States& states, const LseOf& lse_of) : states_(states) {
    const size_t row = stride() * size_of(states.from);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    params_.num_states = states.num_states, params_.num_heads = kHeads;
    params_.head_dim = states.head_dim, params_.num_rows = kRows;
    const int divides = std::gcd(states.head_dim, states.padding);
    params_.elems = divides % device::kMergeElems == 0 ? device::kMergeElems : divides % 2 ? 1 : 2;
    for (int s = 0; s < states.num_states; s++) {
      outs_.push_back(memory_.allocate<unsigned char>(kRows * row, "outs"));
      lses_.push_back(memory_.allocate<float>(kRows, "lses"));
      for (int r = 0; r < kRows; r++) {
        lses_[s][at(r)] = lse_of(r, s);
        if (std::isinf(lses_[s][at(r)])) continue;  // its output stays NaN
        for (int d = 0; d < states.head_dim; d++)
          store(states.from, &outs_[s][r * row + d * size_of(states.from)],
                d == 1 ? -0.0f : normal(random));
      }
      given_outs_.emplace_back(outs_[s].begin(), outs_[s].end());
      given_lses_.emplace_back(lses_[s].begin(), lses_[s].end());
      params_.states[s] = {outs_[s].data(),
                           lses_[s].data(),
                           static_cast<long long>(kHeads * row),
                           static_cast<long long>(row),
                           kTokens,
                           1};
    }
    const size_t out_row = stride() * size_of(states.to);
    out_ = memory_.allocate<unsigned char>(kRows * out_row, "out");
    lse_ = memory_.allocate<float>(kRows, "lse");
    if (states.in_place >= 0) out_ = outs_[states.in_place], lse_ = lses_[states.in_place];
    params_.out = out_.data(), params_.lse = lse_.data();
    params_.out_token_stride = static_cast<long long>(kHeads * out_row);
    params_.out_head_stride = static_cast<long long>(out_row);
    params_.lse_head_stride = kTokens, params_.lse_token_stride = 1;
    run_merge_states(memory_, {}, states.from, states.to, params_);
  }

  void check() const {
    const double bound = states_.to == Element::kFloat32   ? 1e-5
                         : states_.to == Element::kFloat16 ? 2e-3
                                                           : 0.016;
    for (int r = 0; r < kRows; r++) {
      double sum = 0;
      for (int s = 0; s < states_.num_states; s++) sum += weight(s, r);
      if (sum == 0)
        EXPECT_EQ(lse_[at(r)], -kInfinity);
      else
        EXPECT_NEAR(lse_[at(r)], std::log(sum), 1e-5 + 1e-7 * std::abs(std::log(sum)));
      for (int d = 0; d < states_.head_dim; d++) {
        double expected = 0;
        for (int s = 0; s < states_.num_states; s++)
          if (weight(s, r) > 0) expected += weight(s, r) / sum * given(s, r, d);
        ASSERT_NEAR(result(r, d), expected, bound) << "row " << r << " element " << d;
      }
    }
  }
  // Bit for bit the state's, where row r has that one alone.
  void expect_row_is_state(int r, int s) const {
    const size_t bytes = states_.head_dim * size_of(states_.from);
    EXPECT_EQ(std::memcmp(&out_[r * stride() * size_of(states_.to)],
                          &given_outs_[s][r * stride() * size_of(states_.from)], bytes),
              0)
        << "row " << r;
    EXPECT_EQ(lse_[at(r)], given_lses_[s][at(r)]);
  }

 private:
  static int at(int row) { return row % kHeads * kTokens + row / kHeads; }
  size_t stride() const { return static_cast<size_t>(states_.head_dim + states_.padding); }
  double weight(int s, int r) const {
    const float lse = given_lses_[s][at(r)];
    return std::isinf(lse) ? 0 : std::exp(double{lse});
  }
  float given(int s, int r, int d) const {
    return load(states_.from, &given_outs_[s][(r * stride() + d) * size_of(states_.from)]);
  }
  float result(int r, int d) const {
    return load(states_.to, &out_[(r * stride() + d) * size_of(states_.to)]);
  }

  const States states_;
  Memory memory_;
  std::vector<std::span<unsigned char>> outs_;
  std::vector<std::span<float>> lses_;
  std::vector<std::vector<unsigned char>> given_outs_;
  std::vector<std::vector<float>> given_lses_;
  std::span<unsigned char> out_;
  std::span<float> lse_;
  device::MergeStatesParams params_{};
};

float some_lse(int row, int state) {
  return static_cast<float>(std::sin(row + 3 * state) * 5);
}

constexpr Element kElements[] = {Element::kFloat32, Element::kFloat16, Element::kBFloat16};

TEST(MergeStatesKernel, weighs_states_by_their_lse) {
  for (const int num_states : {1, 2, 33, device::kMaxMergeStates})
    Merged({.num_states = num_states}, some_lse).check();
  for (const Element from : kElements)
    for (const Element to : kElements) Merged({.from = from, .to = to}, some_lse).check();
}

TEST(MergeStatesKernel, rows_may_lie_anywhere) {
  for (const Element element : kElements)
    for (const int head_dim : {1, 31, 64, 130})
      for (const int padding : {0, 1, 2})
        Merged({.head_dim = head_dim, .from = element, .to = element, .padding = padding}, some_lse)
            .check();
}

TEST(MergeStatesKernel, the_result_may_be_one_of_the_states) {
  for (const Element element : kElements)
    Merged({.num_states = 3, .from = element, .to = element, .in_place = 1}, some_lse).check();
}

TEST(MergeStatesKernel, a_state_without_keys_is_the_identity_bit_for_bit) {
  for (const Element element : kElements) {
    const Merged merged({.num_states = 5, .from = element, .to = element}, [](int row, int state) {
      return state == row % 5 ? 1.25f + static_cast<float>(row)
             : state % 2      ? -kInfinity
                              : kInfinity;
    });
    merged.check();
    for (int row = 0; row < kRows; row++) merged.expect_row_is_state(row, row % 5);
  }
}

TEST(MergeStatesKernel, no_key_at_all_is_0_and_minus_infinity) {
  Merged({.num_states = 3}, [](int, int state) { return state ? -kInfinity : kInfinity; }).check();
}

TEST(MergeStatesKernel, large_lse_lose_nothing_of_their_difference) {
  Merged({.from = Element::kFloat32, .to = Element::kFloat32}, [](int row, int state) {
    return state ? 600.0f : 600.5f + static_cast<float>(row) / 4;
  }).check();
}

}  // namespace
}  // namespace rapt::emulator
