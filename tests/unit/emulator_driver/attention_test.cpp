// The attention kernel as the GPU backend will run it, on an emulated device, against attention in
// double precision.
#include <cmath>
#include <random>

#include "core/float16.hpp"
#include "kernels/abi/attention.hpp"
#include "launch/kernel.hpp"
#include "unit/emulator_driver/emulated.hpp"

namespace rapt::cuda {
namespace {

using device::AttentionParams;
using device::AttentionWork;

constexpr int kDim = 64, kKvHeads = 2, kGroup = 3, kPageSize = 16, kQueries = 21, kKeys = 70;
constexpr int kHeads = kKvHeads * kGroup, kPages = (kKeys + kPageSize - 1) / kPageSize;

class EmulatedAttention : public EmulatedDevice {
 protected:
  const Kernel& attention() {
    jit::KernelKey key = key_of("attention");
    key.type("element", "Bf16").number("head_dim", kDim).number("group", kGroup);
    jit::KernelSource source{
        "prefill/attention_sm80.cuh",
        "attention",
        "constexpr AttentionVariant kVariant = {key::head_dim, key::head_dim, key::group, 16, 64, "
        "32, 2, 4, false, false, false, false, false};\n"
        "extern \"C\" GLOBAL void LAUNCH_BOUNDS(128)\n"
        "attention(const GRID_CONSTANT AttentionParams params) {\n"
        "  AttentionBlock<kVariant, key::element>(params).run();\n}",
        {{"sizeof(AttentionParams)", sizeof(AttentionParams)}}};
    return kernels_.get(key, source, kSharedBytes);
  }

  void expect_right();

  // q, two stages of k and v, their rows, what 64 rows see, and the work: AttentionShared.
  static constexpr int kSharedBytes = 2 * kDim * (64 + 4 * 32) + 2 * 2 * 8 * 32 + 8 * 64 + 128;
};

std::vector<uint16_t> normal(size_t count, std::mt19937& random) {
  std::normal_distribution<float> draw;
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = float_to_bfloat16(draw(random));
  return values;
}

void EmulatedAttention::expect_right() {
  std::mt19937 random(3);
  const std::vector<uint16_t> q = normal(kQueries * kHeads * kDim, random);
  const size_t cache_size = size_t{kPages} * kPageSize * kKvHeads * kDim;
  const std::vector<uint16_t> k = normal(cache_size, random), v = normal(cache_size, random);
  const std::vector<int> page_ids = {3, 0, 4, 1, 2};
  ASSERT_EQ(page_ids.size(), size_t{kPages});
  const std::vector<AttentionWork> works = {
      {{0, kQueries, kKeys, 0, 0, 0}, 0, 0, kQueries * kGroup, 0, kKeys, -1}};
  const DeviceBuffer works_there = on_device(works), pages_there = on_device(page_ids);
  const DeviceBuffer q_there = on_device(q), k_there = on_device(k), v_there = on_device(v);
  const DeviceBuffer out_there(context_, q.size() * 2);
  const DeviceBuffer lse_there(context_, sizeof(float) * kHeads * kQueries);
  AttentionParams params{};
  const auto point = [](auto*& pointer, const DeviceBuffer& at) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(at.address());
  };
  point(params.works, works_there), point(params.page_ids, pages_there);
  point(params.q, q_there), point(params.k, k_there);
  point(params.v, v_there), point(params.out, out_there), point(params.lse, lse_there);
  params.q_head_stride = params.out_head_stride = 2 * kDim;
  params.q_token_stride = params.out_token_stride = 2 * kDim * kHeads;
  params.k_head_stride = params.v_head_stride = 2 * kDim;
  params.k_token_stride = params.v_token_stride = 2 * kDim * kKvHeads;
  params.k_page_stride = params.v_page_stride = 2 * kDim * kKvHeads * kPageSize;
  params.lse_head_stride = kQueries, params.lse_token_stride = 1;
  params.window_left = -1, params.window_right = 0;
  params.scale = 0.125F, params.out_scale = 1;
  launch(attention(), {.grid = {kKvHeads}, .block = {128}, .shared_bytes = kSharedBytes}, {},
         params);

  const std::vector<uint16_t> out = on_host<uint16_t>(out_there);
  const std::vector<float> lse = on_host<float>(lse_there);
  const auto wide = [](uint16_t bits) { return static_cast<double>(bfloat16_to_float(bits)); };
  double worst = 0;
  for (int i = 0; i < kQueries; i++)
    for (int head = 0; head < kHeads; head++) {
      std::vector<double> expected(kDim);
      double sum = 0;
      const size_t row = static_cast<size_t>(i * kHeads + head) * kDim;
      for (int key = 0; key <= i + kKeys - kQueries; key++) {
        const size_t token =
            static_cast<size_t>(page_ids[key / kPageSize]) * kPageSize + key % kPageSize;
        const size_t at = (token * kKvHeads + head / kGroup) * kDim;
        double score = 0;
        for (int d = 0; d < kDim; d++) score += wide(q[row + d]) * wide(k[at + d]);
        const double weight = std::exp(score * 0.125);
        sum += weight;
        for (int d = 0; d < kDim; d++) expected[d] += weight * wide(v[at + d]);
      }
      EXPECT_NEAR(lse[head * kQueries + i], std::log(sum), 2e-5);
      for (int d = 0; d < kDim; d++)
        worst = std::max(worst, std::abs(wide(out[row + d]) - expected[d] / sum));
    }
  // bf16 has 8 bits: a weight and a result of up to 4 are off by 2^-9 of that each.
  EXPECT_LT(worst, 0.02);
}

TEST_F(EmulatedAttention, is_attention) {
  expect_right();
}

#ifdef CLANG
TEST_F(EmulatedAttention, is_attention_with_clang_too) {
  const Variable cxx("RAPT_CXX", CLANG);
  expect_right();
}
#endif

}  // namespace
}  // namespace rapt::cuda
