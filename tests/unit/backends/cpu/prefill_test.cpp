#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "kernel_case.hpp"

namespace rapt::test {
namespace {

// Each claim is checked on every instruction set of this processor.
class Prefill : public testing::TestWithParam<const cpu::Kernels*> {
 protected:
  const cpu::Kernels& kernels() const { return *GetParam(); }

  void expect_reference(const KernelCase& c) {
    KernelTensors tensors(c);
    const KernelReference expected = reference(tensors);
    tensors.poison_unseen();
    run_prefill(kernels(), tensors);
    const KernelError error = error_of(tensors, expected);
    EXPECT_LE(error.out, 1) << c.describe();
    EXPECT_LE(error.lse, 1) << c.describe();
    worst_out_ = std::max(worst_out_, error.out);
    worst_lse_ = std::max(worst_lse_, error.lse);
  }
  void TearDown() override {
    std::printf("worst error over bound: out %.3f, lse %.3f\n", worst_out_, worst_lse_);
  }
  double worst_out_ = 0, worst_lse_ = 0;
};

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

TEST_P(Prefill, serves_every_head_dim) {
  for (DType dtype : kDTypes)
    for (auto [qk, vo] : {std::pair{8, 8},
                          {40, 40},
                          {64, 64},
                          {72, 72},
                          {128, 128},
                          {192, 128},
                          {128, 192},
                          {256, 256},
                          {512, 512},
                          {24, 320}})
      expect_reference({.dtype = dtype, .head_dim_qk = qk, .head_dim_vo = vo});
}

TEST_P(Prefill, serves_groups_and_page_sizes) {
  for (DType dtype : kDTypes)
    for (int32_t group : {1, 2, 3, 8})
      for (int32_t page_size : {0, 1, 3, 16, 64})
        expect_reference({.dtype = dtype,
                          .num_kv_heads = 2,
                          .group = group,
                          .page_size = page_size,
                          .query_len = 7,
                          .kv_len = 67});
}

TEST_P(Prefill, goes_through_many_blocks_of_keys_and_rows) {
  for (DType dtype : kDTypes) {
    expect_reference({.dtype = dtype, .group = 3, .query_len = 45, .kv_len = 831});
    expect_reference({.dtype = dtype,
                      .group = 5,
                      .head_dim_qk = 8,
                      .head_dim_vo = 512,
                      .query_len = 130,
                      .kv_len = 150,
                      .window_right = -1});
  }
}

TEST_P(Prefill, masks_by_position) {
  for (DType dtype : kDTypes)
    for (auto [left, right] : {std::pair<int64_t, int64_t>{-1, -1},
                               {0, 0},
                               {7, 0},
                               {300, 0},
                               {-1, 5},
                               {20, 20},
                               {0, -1},
                               {7, -8},
                               {200, -150}})
      expect_reference({.dtype = dtype,
                        .group = 2,
                        .query_len = 50,
                        .kv_len = 531,
                        .window_left = left,
                        .window_right = right});
}

TEST_P(Prefill, gives_rows_that_see_nothing_zero_and_minus_infinity) {
  // The first 20 of 30 queries stand before the first key.
  for (DType dtype : kDTypes)
    for (bool sinks : {false, true})
      expect_reference({.dtype = dtype, .group = 2, .query_len = 30, .kv_len = 10, .sinks = sinks});
  expect_reference({.query_len = 3, .kv_len = 0});
}

TEST_P(Prefill, joins_the_custom_mask_to_the_window) {
  for (DType dtype : kDTypes)
    for (int32_t kv_len : {1, 9, 300})
      for (int64_t left : {-1, 6})
        expect_reference({.dtype = dtype,
                          .group = 2,
                          .query_len = 3,
                          .kv_len = kv_len,
                          .window_left = left,
                          .custom_mask = true});
}

TEST_P(Prefill, applies_every_rule_of_the_score) {
  for (DType dtype : kDTypes) {
    for (float softcap : {0.5f, 30.0f})
      expect_reference(
          {.dtype = dtype, .query_len = 20, .kv_len = 300, .softcap = softcap, .spread = 2});
    expect_reference({.dtype = dtype, .group = 2, .query_len = 20, .kv_len = 300, .alibi = true});
    expect_reference({.dtype = dtype, .group = 2, .query_len = 20, .kv_len = 300, .sinks = true});
    expect_reference(
        {.dtype = dtype, .num_kv_heads = 2, .query_len = 20, .kv_len = 300, .scales = true});
    expect_reference({.dtype = dtype, .query_len = 20, .kv_len = 300, .scale = -0.2f});
    expect_reference({.dtype = dtype,
                      .num_kv_heads = 2,
                      .group = 2,
                      .query_len = 20,
                      .kv_len = 300,
                      .window_left = 100,
                      .window_right = 10,
                      .softcap = 20,
                      .alibi = true,
                      .sinks = true,
                      .custom_mask = true,
                      .scales = true});
  }
}

// Logits around -1e6 and far below any usual stand-in for -inf.
TEST_P(Prefill, takes_any_logit_for_a_real_one) {
  for (float magnitude : {1e6f, 1e30f}) {
    KernelCase c{.dtype = DType::kFloat32,
                 .head_dim_qk = 8,
                 .head_dim_vo = 8,
                 .query_len = 4,
                 .kv_len = 40,
                 .scale = 1};
    KernelTensors tensors(c);
    for (int64_t j = 0; j < c.kv_len; j++)
      for (int32_t d = 0; d < c.head_dim_qk; d++) tensors.set_k(j, 0, d, 0);
    cpu::Problem problem = tensors.problem();
    float* q = reinterpret_cast<float*>(const_cast<std::byte*>(problem.q));
    for (int64_t i = 0; i < (KernelTensors::kQueryStart + c.query_len) * problem.q_token_stride / 4;
         i++)
      q[i] = 1;
    for (int64_t j = 0; j < c.kv_len; j++) tensors.set_k(j, 0, 0, -magnitude);
    const KernelReference expected = reference(tensors);
    run_prefill(kernels(), tensors);
    for (int64_t i = 0; i < c.query_len; i++) {
      EXPECT_NEAR(tensors.lse(i, 0) / expected.lse[i], 1, 1e-6);
      for (int32_t d = 0; d < c.head_dim_vo; d++)
        EXPECT_NEAR(tensors.out(i, 0, d), expected.out[i * c.head_dim_vo + d], 1e-6);
    }
  }
}

// Scores of 1e11, whose units in the last place are thousands: the one key still weighs 1.
TEST_P(Prefill, gives_the_value_of_a_single_key_of_any_score) {
  KernelCase c{.dtype = DType::kBFloat16,
               .head_dim_qk = 64,
               .head_dim_vo = 64,
               .query_len = 20,
               .kv_len = 1,
               .window_right = -1};
  KernelTensors tensors(c);
  const cpu::Problem problem = tensors.problem();
  auto* q = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(problem.q));
  for (int64_t i = 0; i < (KernelTensors::kQueryStart + c.query_len) * problem.q_token_stride / 2;
       i++)
    q[i] = 0x4802;  // 133120
  for (int32_t d = 0; d < c.head_dim_qk; d++) tensors.set_k(0, 0, d, 133120);
  const KernelReference expected = reference(tensors);
  run_prefill(kernels(), tensors);
  for (int64_t i = 0; i < c.query_len; i++)
    for (int32_t d = 0; d < c.head_dim_vo; d++)
      EXPECT_EQ(tensors.out(i, 0, d), static_cast<float>(expected.out[i * c.head_dim_vo + d]));
}

// A late key far above all earlier ones: the output is rescaled by 2^-large.
TEST_P(Prefill, rescales_when_the_maximum_grows) {
  for (DType dtype : kDTypes)
    for (float spread : {3.0f, 12.0f})
      expect_reference({.dtype = dtype, .query_len = 30, .kv_len = 900, .spread = spread});
}

TEST_P(Prefill, gives_a_row_the_same_bits_in_any_company) {
  for (DType dtype : kDTypes) {
    const KernelCase c{.dtype = dtype,
                       .group = 3,
                       .query_len = 80,
                       .kv_len = 400,
                       .window_left = 280,
                       .spread = 2};
    KernelTensors tensors(c);
    run_prefill(kernels(), tensors);
    const std::vector<std::byte> whole = tensors.out_bytes();
    const std::vector<float> whole_lse = tensors.lse_values();
    for (int32_t rows : {1, 5, 7, 96, 100}) {
      run_prefill(kernels(), tensors, rows);
      EXPECT_EQ(std::memcmp(whole.data(), tensors.out_bytes().data(), whole.size()), 0)
          << to_string(dtype) << " rows " << rows;
      EXPECT_EQ(std::memcmp(whole_lse.data(), tensors.lse_values().data(),
                            whole_lse.size() * sizeof(float)),
                0);
    }
  }
}

TEST_P(Prefill, writes_the_same_output_where_no_lse_is_wanted) {
  for (DType dtype : kDTypes)
    for (bool sinks : {false, true})
      for (float spread : {1.0f, 4.0f}) {
        KernelCase c{.dtype = dtype,
                     .group = 2,
                     .query_len = 90,
                     .kv_len = 700,
                     .sinks = sinks,
                     .spread = spread};
        KernelTensors with(c);
        run_prefill(kernels(), with);
        c.wants_lse = false;
        KernelTensors without(c);
        run_prefill(kernels(), without);
        EXPECT_EQ(with.out_bytes(), without.out_bytes()) << c.describe();
      }
}

// Head dims so large that the packed keys are several chunks, with O of many rows between them.
TEST_P(Prefill, passes_over_many_keys_chunk_by_chunk) {
  for (int64_t window_left : {-1, 400})
    for (float spread : {0.3f, 2.0f})
      expect_reference({.group = 2,
                        .head_dim_qk = 512,
                        .head_dim_vo = 512,
                        .query_len = 40,
                        .kv_len = 1300,
                        .window_left = window_left,
                        .spread = spread});
}

// Parts of the keys, merged in fp64, are the whole.
TEST_P(Prefill, writes_partial_states_that_merge) {
  for (DType dtype : kDTypes) {
    const KernelCase c{.dtype = dtype,
                       .num_kv_heads = 2,
                       .group = 2,
                       .query_len = 40,
                       .kv_len = 600,
                       .sinks = true,
                       .scales = true};
    KernelTensors tensors(c);
    const KernelReference expected = reference(tensors, false);
    const cpu::Problem problem = tensors.problem();
    std::vector<std::byte> memory(kernels().prefill_scratch_bytes(problem) + 64);
    void* scratch = memory.data();
    size_t space = memory.size();
    std::align(64, 1, scratch, space);

    constexpr int32_t kCuts[] = {0, 100, 101, 577, 600};
    constexpr int32_t kStride = 80, kFirst = 3;
    const int32_t rows = c.num_kv_heads * c.num_rows();
    std::vector<float> out((kFirst + 4 * rows) * kStride, NAN), lse(kFirst + 4 * rows, NAN);
    for (int part = 0; part < 4; part++)
      for (int32_t h = 0; h < c.num_kv_heads; h++) {
        const cpu::Work work{.request = 0,
                             .kv_head_begin = h,
                             .kv_head_end = h + 1,
                             .row_begin = 0,
                             .row_end = c.num_rows(),
                             .key_begin = kCuts[part],
                             .key_end = kCuts[part + 1],
                             .phase = cpu::Phase::kPrefill,
                             .partial = kFirst + part * rows + h * c.num_rows()};
        kernels().prefill(problem, tensors.request(), work, {out.data(), lse.data(), kStride},
                          static_cast<std::byte*>(scratch));
      }
    for (int64_t i = 0; i < c.query_len; i++)
      for (int32_t head = 0; head < c.num_query_heads(); head++) {
        const int64_t reference_row = i * c.num_query_heads() + head;
        for (int32_t d = 0; d < c.head_dim_vo; d++) {
          double sum = 0, value = 0;
          for (int part = 0; part < 4; part++) {
            const int64_t row =
                kFirst + part * rows + head / c.group * c.num_rows() + i * c.group + head % c.group;
            const double weight = std::exp(lse[row] - expected.lse[reference_row]);
            sum += weight;
            value += weight * out[row * kStride + d];
          }
          EXPECT_NEAR(sum, 1, 1e-3);
          EXPECT_NEAR(value, expected.out[reference_row * c.head_dim_vo + d],
                      dtype == DType::kBFloat16 ? 0x1p-8 * expected.largest_value : 1e-5);
        }
      }
  }
}

TEST_P(Prefill, agrees_with_fp64_on_random_problems) {
  std::mt19937 random(7);
  const auto pick = [&]<typename... T>(T... choices) {
    const std::common_type_t<T...> all[] = {choices...};
    return all[random() % sizeof...(choices)];
  };
  for (int i = 0; i < 150; i++)
    expect_reference({.dtype = pick(DType::kFloat32, DType::kFloat16, DType::kBFloat16),
                      .num_kv_heads = pick(1, 2),
                      .group = pick(1, 2, 4, 5),
                      .head_dim_qk = pick(8, 16, 48, 64, 80),
                      .head_dim_vo = pick(8, 24, 64, 96),
                      .page_size = pick(0, 1, 4, 16),
                      .query_len = static_cast<int32_t>(random() % 40 + 1),
                      .kv_len = static_cast<int32_t>(random() % 330),
                      .window_left = static_cast<int64_t>(pick(-1, -1, 0, 30, 100)),
                      .window_right = static_cast<int64_t>(pick(-1, 0, 0, 3)),
                      .softcap = pick(0.0f, 0.0f, 15.0f),
                      .alibi = random() % 3 == 0,
                      .sinks = random() % 3 == 0,
                      .custom_mask = random() % 3 == 0,
                      .scales = random() % 3 == 0,
                      .spread = pick(0.1f, 1.0f, 3.0f),
                      .seed = static_cast<uint32_t>(random())});
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Prefill, testing::ValuesIn(runnable_kernels()),
                         [](const auto& test) { return name_of(*test.param); });

}  // namespace
}  // namespace rapt::test
