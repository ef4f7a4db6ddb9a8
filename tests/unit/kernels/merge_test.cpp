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
// Rows 1 to 5 of each KV head, of a request that begins with token 1: of tokens 1 to 3.
constexpr int kGroup = 2, kKvHeads = 3, kHeads = kGroup * kKvHeads, kTokens = 5;
constexpr int kQueryStart = 1, kRowBegin = 1, kRowEnd = 6, kRows = kRowEnd - kRowBegin;
constexpr int kFirstPartial = 4;  // those before are of other tiles

// A tile's rows, each in num_parts parts whose lse is lse_of(row, part), as two works, and one that
// is nothing.
class Merge {
 public:
  template <typename LseOf>
  Merge(int num_parts, bool sinks, const LseOf& lse_of, float sink_bias = 0, int head_dim = 72)
      : num_parts_(num_parts), head_dim_(head_dim) {
    works_ = memory_.allocate<device::MergeWork>(3, "works");
    constexpr int kFirst = 2;  // rows of the first work
    works_[0] = {kFirstPartial, kRows, num_parts, kQueryStart, kRowBegin, kRowBegin + kFirst};
    works_[1] = {kFirstPartial + kFirst, kRows,  num_parts, kQueryStart,
                 kRowBegin + kFirst,     kRowEnd};
    works_[2] = {};
    const int num_partials = (kFirstPartial + num_parts * kRows) * kKvHeads;
    partial_out_ = memory_.allocate<float>(num_partials * head_dim, "partial_out");
    partial_lse_ = memory_.allocate<float>(num_partials, "partial_lse");
    out_ = memory_.allocate<uint16_t>(kTokens * kHeads * head_dim, "out");
    lse_ = memory_.allocate<float>(kHeads * kTokens, "lse");
    sinks_ = memory_.allocate<float>(kHeads, "sinks");
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int row = kRowBegin; row < kRowEnd; row++)
      for (int kv_head = 0; kv_head < kKvHeads; kv_head++)
        for (int part = 0; part < num_parts; part++) {
          const int at = partial(row, kv_head, part);
          partial_lse_[at] = lse_of(row * kKvHeads + kv_head, part);
          if (std::isinf(partial_lse_[at])) continue;  // its output stays NaN
          for (int d = 0; d < head_dim; d++) partial_out_[at * head_dim + d] = normal(random);
        }
    for (int head = 0; head < kHeads; head++) sinks_[head] = normal(random) + sink_bias;
    params_.works = works_.data();
    params_.blocks_per_work = 3;  // for 12 rows: the works have 6 and 9
    params_.group = kGroup, params_.num_kv_heads = kKvHeads, params_.head_dim = head_dim;
    params_.partial_out = partial_out_.data(), params_.partial_lse = partial_lse_.data();
    params_.sinks = sinks ? sinks_.data() : nullptr;
    params_.out = reinterpret_cast<unsigned char*>(out_.data()), params_.lse = lse_.data();
    params_.out_head_stride = 2 * head_dim;
    params_.out_token_stride = kHeads * params_.out_head_stride;
    params_.lse_head_stride = kTokens, params_.lse_token_stride = 1;
    run_merge(memory_, {}, works_.size(), params_);
  }

  void check() const {
    for (int token = 0; token < kTokens; token++)
      for (int head = 0; head < kHeads; head++) {
        SCOPED_TRACE(testing::Message() << "token " << token << " head " << head);
        const int row = (token - kQueryStart) * kGroup + head % kGroup;
        if (row < kRowBegin || row >= kRowEnd)
          expect_untouched(token, head);
        else
          check_row(token, head, row);
      }
  }

 private:
  static int partial(int row, int kv_head, int part) {
    return (kFirstPartial + part * kRows + row - kRowBegin) * kKvHeads + kv_head;
  }
  const uint16_t* out(int token, int head) const {
    return out_.data() + (token * kHeads + head) * head_dim_;
  }

  void check_row(int token, int head, int row) const {
    double sum = params_.sinks ? std::exp(double{sinks_[head]}) : 0;
    std::vector<double> expected(head_dim_);
    for (int part = 0; part < num_parts_; part++) {
      const int at = partial(row, head / kGroup, part);
      if (std::isinf(partial_lse_[at])) continue;
      const double weight = std::exp(double{partial_lse_[at]});
      sum += weight;
      for (int d = 0; d < head_dim_; d++) expected[d] += weight * partial_out_[at * head_dim_ + d];
    }
    const float lse = lse_[head * kTokens + token];
    if (sum == 0)
      EXPECT_EQ(lse, -kInfinity);
    else
      EXPECT_NEAR(lse, std::log(sum), 1e-5);
    for (int d = 0; d < head_dim_; d++)  // rounded to bf16
      ASSERT_NEAR(bfloat16_to_float(out(token, head)[d]), sum == 0 ? 0 : expected[d] / sum, 0.01)
          << "element " << d;
  }
  void expect_untouched(int token, int head) const {
    EXPECT_TRUE(std::isnan(lse_[head * kTokens + token]));
    for (int d = 0; d < head_dim_; d++) ASSERT_EQ(out(token, head)[d], 0xffff) << "element " << d;
  }

  const int num_parts_, head_dim_;
  Memory memory_;
  std::span<device::MergeWork> works_;
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
TEST(MergeKernel, heads_may_be_longer_than_a_warp_reads_at_once) {
  for (const int num_parts : {3, 40})
    Merge(
        num_parts, false, [](int, int part) { return static_cast<float>(part % 3); }, 0, 136)
        .check();
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
