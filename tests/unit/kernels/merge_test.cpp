// The merge of partial results on the emulator against weights in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cache_kernels.hpp"
#include "core/float16.hpp"

namespace rapt::emulator {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kTokens = 3, kHeads = 2, kHeadDim = 72;

// All tokens and heads of a step, each in num_parts parts whose lse is lse_of(row, part), and a row
// without parts, which is none.
class Merge {
 public:
  template <typename LseOf>
  Merge(int num_parts, bool sinks, const LseOf& lse_of, float sink_bias = 0)
      : num_parts_(num_parts) {
    constexpr int kRows = kTokens * kHeads;
    rows_ = memory_.allocate<device::MergeRow>(kRows + 1, "rows");
    rows_[kRows] = {};
    partial_out_ = memory_.allocate<float>(kRows * num_parts * kHeadDim, "partial_out");
    partial_lse_ = memory_.allocate<float>(kRows * num_parts, "partial_lse");
    out_ = memory_.allocate<uint16_t>(kRows * kHeadDim, "out");
    lse_ = memory_.allocate<float>(kRows, "lse");
    sinks_ = memory_.allocate<float>(kHeads, "sinks");
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int row = 0; row < kRows; row++) {
      rows_[row] = {row, kRows, num_parts, row / kHeads, row % kHeads};
      for (int part = 0; part < num_parts; part++) {
        const int at = part * kRows + row;
        partial_lse_[at] = lse_of(row, part);
        if (std::isinf(partial_lse_[at])) continue;  // its output stays NaN
        for (int d = 0; d < kHeadDim; d++) partial_out_[at * kHeadDim + d] = normal(random);
      }
    }
    for (int head = 0; head < kHeads; head++) sinks_[head] = normal(random) + sink_bias;
    params_.rows = rows_.data(), params_.num_rows = kRows + 1, params_.head_dim = kHeadDim;
    params_.partial_out = partial_out_.data(), params_.partial_lse = partial_lse_.data();
    params_.sinks = sinks ? sinks_.data() : nullptr;
    params_.out = reinterpret_cast<unsigned char*>(out_.data()), params_.lse = lse_.data();
    params_.out_head_stride = 2 * kHeadDim;
    params_.out_token_stride = kHeads * params_.out_head_stride;
    params_.lse_head_stride = kTokens, params_.lse_token_stride = 1;
    run_merge(memory_, {}, params_);
  }

  void check() const {
    for (int row = 0; row < kTokens * kHeads; row++) {
      const int token = row / kHeads, head = row % kHeads;
      double sum = params_.sinks ? std::exp(double{sinks_[head]}) : 0;
      std::vector<double> expected(kHeadDim);
      for (int part = 0; part < num_parts_; part++) {
        const int at = part * kTokens * kHeads + row;
        if (std::isinf(partial_lse_[at])) continue;
        const double weight = std::exp(double{partial_lse_[at]});
        sum += weight;
        for (int d = 0; d < kHeadDim; d++) expected[d] += weight * partial_out_[at * kHeadDim + d];
      }
      const float lse = lse_[head * kTokens + token];
      if (sum == 0)
        EXPECT_EQ(lse, -kInfinity);
      else
        EXPECT_NEAR(lse, std::log(sum), 1e-5);
      for (int d = 0; d < kHeadDim; d++)  // rounded to bf16
        ASSERT_NEAR(bfloat16_to_float(out_[row * kHeadDim + d]), sum == 0 ? 0 : expected[d] / sum,
                    0.01)
            << "row " << row << " element " << d;
    }
  }

 private:
  const int num_parts_;
  Memory memory_;
  std::span<device::MergeRow> rows_;
  std::span<float> partial_out_, partial_lse_, lse_, sinks_;
  std::span<uint16_t> out_;
  device::MergeParams params_{};
};

TEST(MergeKernel, weighs_parts_by_their_lse) {
  for (const bool sinks : {false, true})
    for (const int num_parts : {1, 2, 7, 40})
      Merge(num_parts, sinks, [](int row, int part) {
        return static_cast<float>(std::sin(row + 3 * part) * 5);
      }).check();
}
TEST(MergeKernel, parts_without_keys_count_for_nothing) {
  for (const bool sinks : {false, true})
    Merge(5, sinks, [](int row, int part) {
      return part == row % 5 ? 1.5f : part % 2 ? -kInfinity : kInfinity;
    }).check();
}
TEST(MergeKernel, a_sink_may_be_far_above_the_parts) {
  Merge(
      2, true, [](int, int part) { return part - 60.0f; }, 150)
      .check();
}
TEST(MergeKernel, rows_without_keys_are_0) {
  for (const bool sinks : {false, true})
    Merge(3, sinks, [](int, int) { return -kInfinity; }).check();
}

}  // namespace
}  // namespace rapt::emulator
