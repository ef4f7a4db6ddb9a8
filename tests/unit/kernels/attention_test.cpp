// The attention kernels on the emulator against attention in double precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "attention_kernel.hpp"
#include "cache_kernels.hpp"
#include "core/float16.hpp"
#include "plan/gpu_plan.hpp"

namespace rapt::emulator {
namespace {

using device::AttentionParams;
using device::AttentionRequest;
using device::AttentionVariant;
using device::AttentionWork;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kKvHeads = 2;

struct Step {
  std::vector<int> query_lens, kv_lens;
  int window_left = -1, window_right = 0;
  int num_slots = 0;  // of a GPU that a plan cuts the keys for; 0: no key is cut
  bool fp16 = false;
  float softcap = 3;
  int hidden_key = -1;  // that the mask hides from every query: it is NaN
  int num_empty = 0;    // works, and merges, behind those of the step
};

// A step's tensors in the emulator's memory: page tails, an unused page and what lies behind the
// last query are NaN.
class Attention {
 public:
  Attention(int variant, const Step& step)
      : index_(variant), variant_(kAttentionVariants[variant]), step_(step) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::span<uint16_t> row) {
      for (uint16_t& x : row) x = narrow(normal(random));
    };
    make_requests(random);
    const int heads = num_heads();
    q_ = memory_.allocate<uint16_t>(num_tokens_ * heads * variant_.head_dim_qk, "q");
    fill(q_);
    k_ = memory_.allocate<uint16_t>(num_rows_ * kKvHeads * variant_.head_dim_qk, "k");
    v_ = memory_.allocate<uint16_t>(num_rows_ * kKvHeads * variant_.head_dim_vo, "v");
    for (const AttentionRequest& request : requests_)
      for (int key = 0; key < request.kv_len; key++)
        for (int head = 0; head < kKvHeads; head++) {
          fill(k_.subspan(place(request, key, head) * variant_.head_dim_qk, variant_.head_dim_qk));
          fill(v_.subspan(place(request, key, head) * variant_.head_dim_vo, variant_.head_dim_vo));
        }
    out_ = memory_.allocate<uint16_t>((num_tokens_ + 1) * heads * variant_.head_dim_vo, "out");
    lse_ = memory_.allocate<float>(heads * num_tokens_, "lse");
    slopes_ = memory_.allocate<float>(heads, "alibi_slopes");
    sinks_ = memory_.allocate<float>(heads, "sinks");
    for (int head = 0; head < heads; head++) {
      slopes_[head] = 0.05f * static_cast<float>(head + 1);
      sinks_[head] = normal(random);
    }
    mask_ = memory_.allocate<uint8_t>((num_bits_ + 7) / 8, "custom_mask");
    for (uint8_t& byte : mask_) byte = static_cast<uint8_t>(random());
    if (step_.hidden_key >= 0)
      for (const AttentionRequest& request : requests_) hide(request, step_.hidden_key);
    make_works();
  }

  void run(const Options& options) {
    const AttentionVariant& v = variant_;
    AttentionParams params{};
    params.works = works_.data();
    params.page_ids = page_ids_.data();
    params.q = bytes(q_), params.k = bytes(k_), params.v = bytes(v_);
    params.out = const_cast<unsigned char*>(bytes(out_));
    params.lse = lse_.data();
    params.partial_out = partial_out_.data(), params.partial_lse = partial_lse_.data();
    params.alibi_slopes = slopes_.data(), params.sinks = sinks_.data();
    params.custom_mask = mask_.data();
    params.q_head_stride = 2 * v.head_dim_qk;
    params.q_token_stride = num_heads() * params.q_head_stride;
    params.k_head_stride = 2 * v.head_dim_qk;
    params.k_token_stride = kKvHeads * params.k_head_stride;
    params.k_page_stride = v.page_size * params.k_token_stride;
    params.v_head_stride = 2 * v.head_dim_vo;
    params.v_token_stride = kKvHeads * params.v_head_stride;
    params.v_page_stride = v.page_size * params.v_token_stride;
    params.out_head_stride = 2 * v.head_dim_vo;
    params.out_token_stride = num_heads() * params.out_head_stride;
    params.lse_head_stride = num_tokens_, params.lse_token_stride = 1;
    params.window_left = step_.window_left, params.window_right = step_.window_right;
    params.scale = scale();
    params.softcap = step_.softcap;
    params.out_scale = 1;
    params.out_in_chunks = !step_.fp16;  // the other way of storing is right too
    run_attention(memory_, options, index_, step_.fp16, kKvHeads,
                  static_cast<uint32_t>(works_.size()), params);
    if (merges_.empty()) return;
    device::MergeParams merge{};
    merge.works = merges_.data();
    merge.blocks_per_work = kKvHeads * device::kMergeRows / device::kMergeWarps;
    merge.group = v.group, merge.num_kv_heads = kKvHeads;
    merge.head_dim = v.head_dim_vo;
    merge.partial_out = partial_out_.data(), merge.partial_lse = partial_lse_.data();
    merge.sinks = v.sinks ? sinks_.data() : nullptr;
    merge.out = params.out, merge.lse = params.lse;
    merge.out_token_stride = params.out_token_stride;
    merge.out_head_stride = params.out_head_stride;
    merge.lse_head_stride = params.lse_head_stride;
    merge.lse_token_stride = params.lse_token_stride;
    run_merge(memory_, options, merges_.size(), merge);
  }

  bool cuts_keys() const { return !merges_.empty(); }
  // Compares every row, and what must not have been written.
  void check() const {
    for (const AttentionRequest& request : requests_)
      for (int i = 0; i < request.query_len; i++)
        for (int head = 0; head < num_heads(); head++) check_row(request, i, head);
    const size_t end = static_cast<size_t>(num_tokens_) * num_heads() * variant_.head_dim_vo;
    EXPECT_THAT(out_.subspan(end), testing::Each(0xffff));
  }

 private:
  // bf16 has 8 bits: a weight and a result are off by 2^-9 of the largest value each.
  static constexpr double kMaxError = 0.02, kMaxLseError = 2e-5;

  int num_heads() const { return kKvHeads * variant_.group; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(variant_.head_dim_qk)); }
  uint16_t narrow(float x) const { return step_.fp16 ? float_to_float16(x) : float_to_bfloat16(x); }
  double widen(uint16_t bits) const {
    return step_.fp16 ? float16_to_float(bits) : bfloat16_to_float(bits);
  }
  template <typename T>
  static const unsigned char* bytes(std::span<T> data) {
    return reinterpret_cast<const unsigned char*>(data.data());
  }
  // Of a key's row of a head in k_ and v_, in rows.
  size_t place(const AttentionRequest& request, int key, int head) const {
    size_t row = static_cast<size_t>(request.kv_start) + key;
    if (const int size = variant_.page_size)
      row = static_cast<size_t>(page_ids_[request.first_page + key / size]) * size + key % size;
    return row * kKvHeads + head;
  }

  void make_requests(std::mt19937& random) {
    const size_t count = step_.query_lens.size();
    requests_ = memory_.allocate<AttentionRequest>(count, "requests");
    std::vector<int> ids;
    for (size_t b = 0; b < count; b++) {
      const int query_len = step_.query_lens[b], kv_len = step_.kv_lens[b];
      requests_[b] = {num_tokens_, query_len, kv_len, num_rows_, std::ssize(ids), num_bits_};
      num_tokens_ += query_len;
      num_bits_ += static_cast<long long>(query_len) * kv_len;
      if (variant_.page_size == 0) num_rows_ += kv_len;
      for (int key = 0; variant_.page_size && key < kv_len; key += variant_.page_size)
        ids.push_back(static_cast<int>(ids.size()));
    }
    std::shuffle(ids.begin(), ids.end(), random);
    if (variant_.page_size) num_rows_ = (static_cast<int>(ids.size()) + 1) * variant_.page_size;
    page_ids_ = memory_.allocate<int>(ids.size(), "page_ids");
    std::copy(ids.begin(), ids.end(), page_ids_.begin());
  }

  void hide(const AttentionRequest& request, int key) {
    for (int i = 0; i < request.query_len; i++) {
      const long long bit = request.mask_bit + static_cast<long long>(i) * request.kv_len + key;
      mask_[bit / 8] &= static_cast<uint8_t>(~(1 << bit % 8));
    }
    for (int head = 0; head < kKvHeads; head++) {
      const size_t row = place(request, key, head);
      std::ranges::fill(k_.subspan(row * variant_.head_dim_qk, variant_.head_dim_qk), 0xffff);
      std::ranges::fill(v_.subspan(row * variant_.head_dim_vo, variant_.head_dim_vo), 0xffff);
    }
  }

  // The planner's, for a GPU so slow that a few keys are worth cutting.
  void make_works() {
    AttentionSpec spec;
    spec.num_query_heads = num_heads(), spec.num_kv_heads = kKvHeads;
    spec.head_dim_qk = variant_.head_dim_qk, spec.head_dim_vo = variant_.head_dim_vo;
    spec.dtype = DType::kBFloat16;
    spec.page_size = variant_.page_size;
    spec.causal = step_.window_right == 0;
    spec.window = {step_.window_left, step_.window_right};
    std::vector<int32_t> query_start{0}, kv_start{0};
    for (size_t b = 0; b < step_.kv_lens.size(); b++) {
      query_start.push_back(query_start.back() + step_.query_lens[b]);
      kv_start.push_back(kv_start.back() + step_.kv_lens[b]);
    }
    Batch batch;
    batch.query_start = query_start, batch.kv_len = step_.kv_lens, batch.kv_start = kv_start;
    gpu::WorkList list;
    const gpu::Machine tile{std::max(step_.num_slots, 1), step_.num_slots ? 0.001 : 1e9, 1e9,
                            variant_.tile_rows, variant_.tile_keys};
    gpu::plan_work(batch, spec, {&tile, 1}, 0, list);
    std::vector<AttentionWork> works(list.pieces.size());
    gpu::write_works(list, {&tile, 1}, 0, works.data());
    works_ = copy<AttentionWork>(works, "works");
    for (AttentionWork& work : works_.first(works.size()))
      work.of_request = requests_[work.request];
    merges_ = copy<device::MergeWork>(list.merges, "merges");
    partial_out_ =
        memory_.allocate<float>(list.num_partial_rows * variant_.head_dim_vo, "partial_out");
    partial_lse_ = memory_.allocate<float>(list.num_partial_rows, "partial_lse");
  }
  template <typename T>
  std::span<T> copy(const std::vector<T>& from, const char* name) {
    const std::span<T> to = memory_.allocate<T>(from.size() + step_.num_empty, name);
    std::fill(std::copy(from.begin(), from.end(), to.begin()), to.end(), T{});
    return to;
  }

  bool sees(const AttentionRequest& request, int i, int key) const {
    const int position = i + request.kv_len - request.query_len;
    if (step_.window_right >= 0 && key > position + step_.window_right) return false;
    if (step_.window_left >= 0 && key < position - step_.window_left) return false;
    const long long bit = request.mask_bit + static_cast<long long>(i) * request.kv_len + key;
    return !variant_.custom_mask || (mask_[bit / 8] >> (bit % 8) & 1);
  }

  void check_row(const AttentionRequest& request, int i, int head) const {
    const AttentionVariant& v = variant_;
    const size_t token = static_cast<size_t>(request.query_start) + i;
    double sum = v.sinks ? std::exp(double{sinks_[head]}) : 0;
    std::vector<double> expected(v.head_dim_vo);
    for (int key = 0; key < request.kv_len; key++) {
      if (!sees(request, i, key)) continue;
      const size_t row = place(request, key, head / v.group);
      double score = 0;
      for (int d = 0; d < v.head_dim_qk; d++)
        score += widen(q_[(token * num_heads() + head) * v.head_dim_qk + d]) *
                 widen(k_[row * v.head_dim_qk + d]);
      score *= scale();
      if (v.softcap) score = step_.softcap * std::tanh(score / step_.softcap);
      if (v.alibi)
        score -= slopes_[head] * std::abs(key - (i + request.kv_len - request.query_len));
      const double weight = std::exp(score);
      sum += weight;
      for (int d = 0; d < v.head_dim_vo; d++)
        expected[d] += weight * widen(v_[row * v.head_dim_vo + d]);
    }
    const double lse = lse_[head * num_tokens_ + token];
    SCOPED_TRACE(testing::Message() << "token " << token << " head " << head);
    if (sum == 0) {
      EXPECT_EQ(lse, -kInfinity);
    } else {
      EXPECT_NEAR(lse, std::log(sum), kMaxLseError);
    }
    for (int d = 0; d < v.head_dim_vo; d++)
      ASSERT_NEAR(widen(out_[(token * num_heads() + head) * v.head_dim_vo + d]),
                  sum == 0 ? 0 : expected[d] / sum, kMaxError)
          << "element " << d;
  }

  const int index_;
  const AttentionVariant variant_;
  const Step step_;
  Memory memory_;
  int num_tokens_ = 0, num_rows_ = 0;
  long long num_bits_ = 0;
  std::span<AttentionRequest> requests_;
  std::span<AttentionWork> works_;
  std::span<device::MergeWork> merges_;
  std::span<int> page_ids_;
  std::span<uint16_t> q_, k_, v_, out_;
  std::span<float> lse_, partial_out_, partial_lse_, slopes_, sinks_;
  std::span<uint8_t> mask_;
};

class EveryVariant : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(AttentionSm80, EveryVariant,
                         testing::Range(0, static_cast<int>(std::size(kAttentionVariants))));

void expect_right(int variant, const Step& step, const Options& options = {}) {
  Attention attention(variant, step);
  attention.run(options);
  attention.check();
}

TEST_P(EveryVariant, is_right_for_a_mixed_batch) {
  for (const bool fp16 : {false, true})
    expect_right(GetParam(),
                 {.query_lens = {9, 1, 0, 30}, .kv_lens = {40, 33, 5, 61}, .fp16 = fp16});
}
TEST_P(EveryVariant, is_right_at_the_ends_of_blocks) {
  const int keys = kAttentionVariants[GetParam()].tile_keys;
  expect_right(GetParam(), {.query_lens = {1, 2, 1, 2, 1},
                            .kv_lens = {keys / 2, keys / 2 + 1, keys, keys + 1, 3 * keys / 2 + 1}});
}
TEST_P(EveryVariant, is_right_both_ways) {
  expect_right(GetParam(), {{5, 17}, {33, 70}, -1, -1});
}
TEST_P(EveryVariant, is_right_within_a_window) {
  expect_right(GetParam(), {{3, 25}, {70, 90}, 11, 0});
  expect_right(GetParam(), {{3, 25}, {70, 90}, 6, 4});
}
TEST_P(EveryVariant, is_right_where_rows_see_no_key) {
  expect_right(GetParam(), {{12, 4}, {5, 0}});
}
TEST_P(EveryVariant, parts_of_the_keys_merge_to_the_whole) {
  const Step step{.query_lens = {4, 1}, .kv_lens = {200, 150}, .num_slots = 40};
  Attention attention(GetParam(), step);
  EXPECT_TRUE(attention.cuts_keys());
  attention.run({});
  attention.check();
}
TEST_P(EveryVariant, works_of_nothing_write_nothing) {
  const Step step{.query_lens = {4, 1}, .kv_lens = {200, 150}, .num_slots = 40, .num_empty = 5};
  Attention attention(GetParam(), step);
  attention.run({});
  attention.check();
}
TEST_P(EveryVariant, scores_far_below_a_softcap_stay_what_they_are) {
  expect_right(GetParam(), {.query_lens = {3}, .kv_lens = {40}, .softcap = 1e6f});
}
TEST(AttentionSm80, what_the_mask_hides_from_all_may_hold_anything) {
  for (int variant = 0; variant < static_cast<int>(std::size(kAttentionVariants)); variant++)
    if (kAttentionVariants[variant].custom_mask)
      expect_right(variant, {.query_lens = {9, 30}, .kv_lens = {40, 61}, .hidden_key = 7});
}
TEST_P(EveryVariant, is_right_under_every_schedule) {
  for (uint64_t seed = 1; seed < 6; seed++)
    expect_right(GetParam(), {{6, 11}, {50, 75}}, {.seed = seed});
}

}  // namespace
}  // namespace rapt::emulator
