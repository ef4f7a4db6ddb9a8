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
  int num_states = 2, num_tokens = 3, num_heads = 2, head_dim = 72;
  Element from = Element::kBFloat16, to = Element::kBFloat16;
  // Elements between rows of outs and of out.
  int padding = 0;
  int in_place = -1;         // the state whose tensors take the result
  bool heads_first = false;  // outs are [H, T, D] and lse [T, H], not [T, H, D] and [H, T]
  int num_rows() const { return num_tokens * num_heads; }
};

class Merged {
 public:
  template <typename LseOf>
  Merged(const States& states, const LseOf& lse_of) : states_(states) {
    const int num_rows = states.num_rows();
    const size_t row = stride() * size_of(states.from);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    params_.num_states = states.num_states, params_.num_tokens = states.num_tokens;
    params_.num_heads = states.num_heads, params_.head_dim = states.head_dim;
    const int divides = std::gcd(states.head_dim, states.padding);
    const auto wide = [](Element element) {
      return device::kMergePieceBytes / static_cast<int>(size_of(element));
    };
    const bool are_wide = divides % wide(states.from) == 0 && divides % wide(states.to) == 0;
    const int elems = are_wide ? wide(states.from) : divides % 2 ? 1 : 2;
    params_.tiles = device::merge_tiles(elems, states.num_states, states.head_dim);
    for (int s = 0; s < states.num_states; s++) {
      outs_.push_back(memory_.allocate<unsigned char>(num_rows * row, "outs"));
      lses_.push_back(memory_.allocate<float>(num_rows, "lses"));
      for (int r = 0; r < num_rows; r++) {
        lses_[s][at(r)] = lse_of(r, s);
        if (std::isinf(lses_[s][at(r)])) continue;  // its output stays NaN
        for (int d = 0; d < states.head_dim; d++)
          store(states.from, &outs_[s][r * row + d * size_of(states.from)],
                d == 1 ? -0.0f : normal(random));
      }
      given_outs_.emplace_back(outs_[s].begin(), outs_[s].end());
      given_lses_.emplace_back(lses_[s].begin(), lses_[s].end());
      params_.states[s] = {outs_[s].data(),  lses_[s].data(),   token_stride(row),
                           head_stride(row), lse_head_stride(), lse_token_stride()};
    }
    const size_t out_row = stride() * size_of(states.to);
    out_ = memory_.allocate<unsigned char>(num_rows * out_row, "out");
    lse_ = memory_.allocate<float>(num_rows, "lse");
    if (states.in_place >= 0) out_ = outs_[states.in_place], lse_ = lses_[states.in_place];
    params_.out = out_.data(), params_.lse = lse_.data();
    params_.out_token_stride = token_stride(out_row);
    params_.out_head_stride = head_stride(out_row);
    params_.lse_head_stride = lse_head_stride(), params_.lse_token_stride = lse_token_stride();
    before_.assign(out_.begin(), out_.end());
    run_merge_states(memory_, {}, states.from, states.to, params_);
  }

  void check() const {
    const double bound = states_.to == Element::kFloat32   ? 1e-5
                         : states_.to == Element::kFloat16 ? 2e-3
                                                           : 0.016;
    for (int r = 0; r < states_.num_rows(); r++) {
      double sum = 0;
      for (int s = 0; s < states_.num_states; s++) sum += weight(s, r);
      if (sum == 0)
        EXPECT_EQ(lse_[at(r)], -kInfinity);
      else
        EXPECT_NEAR(lse_[at(r)], top(r) + std::log(sum),
                    1e-5 + 1e-7 * std::abs(top(r) + std::log(sum)));
      for (int d = 0; d < states_.head_dim; d++) {
        double expected = 0;
        for (int s = 0; s < states_.num_states; s++)
          if (weight(s, r) > 0) expected += weight(s, r) / sum * given(s, r, d);
        ASSERT_NEAR(result(r, d), expected, bound) << "row " << r << " element " << d;
        ASSERT_FALSE(sum == 0 && std::signbit(result(r, d))) << "row " << r << " element " << d;
      }
      const size_t end = r * stride() + states_.head_dim, to = size_of(states_.to);
      EXPECT_EQ(std::memcmp(&out_[end * to], &before_[end * to], states_.padding * to), 0)
          << "behind row " << r;
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
  // Of the lse of row r, in the order that outs have them in.
  int at(int row) const {
    const int inner = states_.heads_first ? states_.num_tokens : states_.num_heads;
    return row % inner * (states_.num_rows() / inner) + row / inner;
  }
  size_t stride() const { return static_cast<size_t>(states_.head_dim + states_.padding); }
  // Of rows of so many bytes.
  long long token_stride(size_t row) const {
    return static_cast<long long>(row) * (states_.heads_first ? 1 : states_.num_heads);
  }
  long long head_stride(size_t row) const {
    return static_cast<long long>(row) * (states_.heads_first ? states_.num_tokens : 1);
  }
  long long lse_head_stride() const { return states_.heads_first ? 1 : states_.num_tokens; }
  long long lse_token_stride() const { return states_.heads_first ? states_.num_heads : 1; }
  double top(int r) const {
    double top = -1e30;
    for (int s = 0; s < states_.num_states; s++)
      if (!std::isinf(given_lses_[s][at(r)])) top = std::max<double>(top, given_lses_[s][at(r)]);
    return top;
  }
  double weight(int s, int r) const {
    const float lse = given_lses_[s][at(r)];
    return std::isinf(lse) ? 0 : std::exp(lse - top(r));
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
  std::vector<unsigned char> before_;  // out's bytes
  std::span<unsigned char> out_;
  std::span<float> lse_;
  device::MergeStatesParams params_{};
};

float some_lse(int row, int state) {
  return static_cast<float>(std::sin(row + 3 * state) * 5);
}

constexpr Element kElements[] = {Element::kFloat32, Element::kFloat16, Element::kBFloat16};

TEST(MergeStatesKernel, weighs_states_by_their_lse) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16})
    for (const int num_states : {1, 2, 3, 4, 5, 8, 9, 33, device::kMaxMergeStates})
      Merged({.num_states = num_states, .from = element, .to = element}, some_lse).check();
  for (const Element from : kElements)
    for (const Element to : kElements) Merged({.from = from, .to = to}, some_lse).check();
}

// From a fraction of the lanes that a row may have to rows that take several turns.
TEST(MergeStatesKernel, heads_may_be_of_any_size) {
  for (const Element element : kElements)
    for (const int head_dim : {8, 64, 128, 192, 256, 576})
      for (const int num_states : {2, 9})
        Merged({.num_states = num_states, .head_dim = head_dim, .from = element, .to = element},
               some_lse)
            .check();
}

TEST(MergeStatesKernel, the_last_tile_of_a_head_need_not_be_full) {
  for (const int num_states : {2, 4, 8})
    for (const int num_tokens : {1, 7, 8, 9, 37})
      for (const int num_heads : {1, 3})
        Merged({.num_states = num_states,
                .num_tokens = num_tokens,
                .num_heads = num_heads,
                .head_dim = 128},
               some_lse)
            .check();
}

TEST(MergeStatesKernel, rows_may_lie_anywhere) {
  for (const Element element : kElements)
    for (const int head_dim : {1, 31, 64, 130})
      for (const int padding : {0, 1, 2})
        Merged({.num_states = 9 * (padding % 2) + 2,
                .head_dim = head_dim,
                .from = element,
                .to = element,
                .padding = padding},
               some_lse)
            .check();
  for (const int num_states : {2, 3, 9})
    Merged({.num_states = num_states, .num_tokens = 11, .padding = 8, .heads_first = true},
           some_lse)
        .check();
}

TEST(MergeStatesKernel, the_result_may_be_one_of_the_states) {
  for (const Element element : kElements)
    for (const int head_dim : {72, 31, 264})
      for (const auto& [num_states, in_place] :
           {std::pair{2, 0}, {2, 1}, {3, 1}, {9, 0}, {9, 7}, {9, 8}})
        Merged({.num_states = num_states,
                .head_dim = head_dim,
                .from = element,
                .to = element,
                .in_place = in_place},
               some_lse)
            .check();
}

TEST(MergeStatesKernel, a_state_without_keys_is_the_identity_bit_for_bit) {
  for (const Element element : kElements)
    for (const int num_states : {2, 3, 5, 20}) {
      const auto its_state = [&](int row) { return (7 * row + 1) % num_states; };
      const States states{.num_states = num_states, .from = element, .to = element};
      const Merged merged(states, [&](int row, int state) {
        return state == its_state(row) ? 1.25f + static_cast<float>(row)
               : state % 2             ? -kInfinity
                                       : kInfinity;
      });
      merged.check();
      for (int row = 0; row < states.num_rows(); row++)
        merged.expect_row_is_state(row, its_state(row));
    }
}

TEST(MergeStatesKernel, no_key_at_all_is_0_and_minus_infinity) {
  for (const int num_states : {2, 3, 9})
    Merged({.num_states = num_states}, [](int, int state) {
      return state ? -kInfinity : kInfinity;
    }).check();
}

// Among those before and behind, states next to which others are nothing.
TEST(MergeStatesKernel, large_weights_come_early_or_late) {
  for (const Element element : {Element::kFloat32, Element::kBFloat16})
    Merged({.num_states = 27, .num_tokens = 9, .from = element, .to = element}, [](int row,
                                                                                   int state) {
      return state == (5 * row) % 27        ? 150.0f
             : (state + row) % 4 == 0       ? -kInfinity
             : state == (5 * row + 11) % 27 ? 149.0f
                                            : some_lse(row, state);
    }).check();
}

TEST(MergeStatesKernel, large_lse_lose_nothing_of_their_difference) {
  Merged({.from = Element::kFloat32, .to = Element::kFloat32}, [](int row, int state) {
    return state ? 600.0f : 600.5f + static_cast<float>(row) / 4;
  }).check();
}

}  // namespace
}  // namespace rapt::emulator
