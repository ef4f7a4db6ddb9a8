#include "backends/cpu/fold.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "backends/cpu/merge.hpp"
#include "kernel_case.hpp"

namespace rapt::test {
namespace {

struct AlignedBytes {
  std::vector<std::byte> memory;
  std::byte* data;
  explicit AlignedBytes(size_t bytes) : memory(bytes + 64, std::byte{0xff}) {
    void* start = memory.data();
    size_t space = memory.size();
    data = static_cast<std::byte*>(std::align(64, bytes, start, space));
  }
};

cpu::Work work_of(const KernelCase& c, cpu::Phase phase) {
  return {.request = 0,
          .kv_head_begin = 0,
          .kv_head_end = c.num_kv_heads,
          .row_begin = 0,
          .row_end = c.num_rows(),
          .key_begin = 0,
          .key_end = c.kv_len,
          .phase = phase,
          .partial = -1};
}

class Fold : public testing::TestWithParam<const cpu::Kernels*> {
 protected:
  void run(KernelTensors& tensors, const cpu::Work& work, const cpu::Partials& partials) {
    const cpu::Kernels& kernels = *GetParam();
    const cpu::Problem problem = tensors.problem();
    const bool decode = work.phase == cpu::Phase::kDecode;
    const AlignedBytes scratch(decode ? kernels.decode_scratch_bytes(problem)
                                      : kernels.prefill_scratch_bytes(problem));
    const cpu::FoldLayout layout(work.num_rows(), partials.out_stride);
    const AlignedBytes fold(static_cast<size_t>(layout.bytes));
    tensors.clear_outputs();
    cpu::run_folded(decode ? kernels.decode : kernels.prefill, problem, tensors.request(), work,
                    partials, scratch.data, fold.data);
  }
};

// Whatever there is to score, mask and join, in decode and prefill.
TEST_P(Fold, agrees_with_fp64) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    for (const bool decode : {true, false}) {
      KernelCase c{.dtype = dtype,
                   .num_kv_heads = decode ? 2 : 1,
                   .group = 2,
                   .head_dim_qk = 8,
                   .head_dim_vo = 24,
                   .query_len = decode ? 2 : 12,
                   .kv_len = 2 * cpu::kMaxChainKeys + 100};
      const auto expect_reference = [&] {
        KernelTensors tensors(c);
        const KernelReference expected = reference(tensors);
        tensors.poison_unseen();
        run(tensors, work_of(c, decode ? cpu::Phase::kDecode : cpu::Phase::kPrefill),
            {nullptr, nullptr, 32});
        const KernelError error = error_of(tensors, expected);
        EXPECT_LE(error.out, 1) << c.describe();
        EXPECT_LE(error.lse, 1) << c.describe();
      };
      expect_reference();
      c.sinks = c.scales = c.custom_mask = true;
      expect_reference();
      c.softcap = 5;
      c.alibi = true;  // the last keys alone have weight: the maximum rises
      expect_reference();
      c.window_left = cpu::kMaxChainKeys + 10;  // no row sees a key of the first call
      expect_reference();
    }
}

TEST_P(Fold, leaves_a_partial_state_where_the_work_is_a_part) {
  const KernelCase c{.dtype = DType::kFloat32,
                     .num_kv_heads = 2,
                     .head_dim_qk = 8,
                     .head_dim_vo = 8,
                     .query_len = 3,
                     .kv_len = cpu::kMaxChainKeys + 70,
                     .sinks = true};
  KernelTensors tensors(c);
  const KernelReference expected = reference(tensors, false);
  constexpr int32_t kStride = 16, kFirst = 2;
  std::vector<float> out((kFirst + 6) * kStride, NAN), lse(kFirst + 6, NAN);
  cpu::Work work = work_of(c, cpu::Phase::kDecode);
  work.partial = kFirst;
  run(tensors, work, {out.data(), lse.data(), kStride});
  for (int32_t head = 0; head < 2; head++)
    for (int32_t i = 0; i < 3; i++) {
      const size_t row = static_cast<size_t>(i * 2 + head), partial = kFirst + head * 3 + i;
      EXPECT_NEAR(lse[partial], expected.lse[row], 1e-5);
      for (size_t d = 0; d < 8; d++)
        EXPECT_NEAR(out[partial * kStride + d], expected.out[row * 8 + d], 1e-5);
    }
  EXPECT_TRUE(std::isnan(out[kStride]) && std::isnan(lse[1]));
}

INSTANTIATE_TEST_SUITE_P(Kernels, Fold, testing::ValuesIn(runnable_kernels()),
                         [](const auto& kernels) { return name_of(*kernels.param); });

// Stands in for a kernel: every key has the score 0, and key j the value of its call's number.
int num_calls;
std::vector<int32_t> call_ends;
void count_keys(const cpu::Problem&, const cpu::Request&, const cpu::Work& work,
                const cpu::Partials& partials, std::byte*) {
  EXPECT_EQ(work.partial, 0);
  EXPECT_LE(work.key_end - work.key_begin, cpu::kMaxChainKeys);
  EXPECT_EQ(work.key_begin, call_ends.back());
  call_ends.push_back(work.key_end);
  partials.out[0] = static_cast<float>(num_calls++ % 7);
  partials.lse[0] = std::log(static_cast<float>(work.key_end - work.key_begin));
}

cpu::Work row_of_keys(int32_t begin, int32_t end) {
  cpu::Work work{};
  work.kv_head_end = work.row_end = 1;
  work.key_begin = begin;
  work.key_end = end;
  return work;
}

// Parts of one weight, 7 after 7, whose mean is 3; sums of fp32 would lose the small ones.
TEST(FoldedRows, many_thousand_calls_all_count) {
  constexpr int32_t kKeys = (1 << 30) / cpu::kMaxChainKeys / 7 * 7 * cpu::kMaxChainKeys;
  cpu::Problem problem{};
  problem.head_dim_vo = 8;
  const AlignedBytes fold(static_cast<size_t>(cpu::FoldLayout(1, 16).bytes));
  std::vector<float> out(16, NAN), lse(1, NAN);
  num_calls = 0;
  call_ends = {0};
  cpu::run_folded(count_keys, problem, {}, row_of_keys(0, kKeys), {out.data(), lse.data(), 16},
                  nullptr, fold.data);
  EXPECT_EQ(num_calls, kKeys / cpu::kMaxChainKeys);
  EXPECT_EQ(out[0], 3);
  EXPECT_FLOAT_EQ(lse[0], std::log(static_cast<float>(kKeys)));
}

TEST(FoldedRows, calls_end_at_multiples_of_a_chain) {
  cpu::Problem problem{};
  const AlignedBytes fold(static_cast<size_t>(cpu::FoldLayout(1, 16).bytes));
  constexpr int32_t kChain = cpu::kMaxChainKeys, kLongest = 0x7fff0000;
  std::vector<float> out(16), lse(1);
  for (const auto& ends :
       std::vector<std::vector<int32_t>>{{100, kChain, 2 * kChain, 2 * kChain + 1},
                                         {kChain, 2 * kChain, 3 * kChain},
                                         {kLongest - kChain - 5, kLongest - kChain, kLongest}}) {
    call_ends = {ends.front()};
    cpu::run_folded(count_keys, problem, {}, row_of_keys(ends.front(), ends.back()),
                    {out.data(), lse.data(), 16}, nullptr, fold.data);
    EXPECT_EQ(call_ends, ends);
  }
}

// 30,000 parts of the same weight: a chain of fp32 sums would be off by 4e-5.
TEST(Merge, thousands_of_parts_all_count) {
  constexpr int32_t kParts = 30000;
  cpu::Problem problem{};
  problem.dtype = DType::kFloat32;
  problem.head_dim_vo = 8;
  problem.group = 1;
  std::vector<float> merged(8, NAN), merged_lse(1, NAN);
  problem.out = reinterpret_cast<std::byte*>(merged.data());
  problem.lse = merged_lse.data();
  std::vector<float> out(size_t{kParts} * 16, 0.3f), lse(kParts, 0.0f);
  cpu::Merge merge{};
  merge.kv_head_end = merge.row_end = 1;
  merge.num_parts = kParts;
  const cpu::Request request{};
  cpu::merge_partials(problem, &request, {&merge, 1}, {out.data(), lse.data(), 16}, 0, 1);
  for (const float x : merged) EXPECT_NEAR(x, 0.3, 1e-6);
  EXPECT_FLOAT_EQ(merged_lse[0], std::log(float{kParts}));
}

}  // namespace
}  // namespace rapt::test
