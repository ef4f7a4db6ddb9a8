#include "llm/engine/kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/float16.hpp"
#include "unit/llm_engine/levels.hpp"

namespace llm {
namespace {

using rapt::DType;

constexpr float kSentinel = 12345;

TEST(EngineKernels, product_agrees_with_fp64) {
  constexpr int64_t kRows = 17, kDepth = 75, kXStride = 80, kOutStride = 40;
  const std::vector<float> x = test::noise(kRows * kXStride, 1);
  const std::vector<float> panel = test::noise(kDepth * kPanelWidth, 2);
  std::vector<uint16_t> half(panel.size()), brain(panel.size());
  for (size_t i = 0; i < panel.size(); ++i) {
    half[i] = rapt::float_to_float16(panel[i]);
    brain[i] = rapt::float_to_bfloat16(panel[i]);
  }
  for (const rapt::CpuIsa isa : test::levels()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const bool accumulate : {false, true}) {
        for (const int64_t columns : {32, 31, 5}) {
          std::vector<float> out(kRows * kOutStride, kSentinel);
          PanelProduct p{.x = x.data(),
                         .x_stride = kXStride,
                         .num_rows = kRows,
                         .depth = kDepth,
                         .panel = reinterpret_cast<const std::byte*>(panel.data()),
                         .out = out.data(),
                         .out_stride = kOutStride,
                         .num_columns = columns,
                         .accumulate = accumulate,
                         .scratch = nullptr};
          auto format = PanelFormat::kFloat32;
          if (dtype != DType::kFloat32) {
            const bool is_half = dtype == DType::kFloat16;
            format = is_half ? PanelFormat::kFloat16 : PanelFormat::kBFloat16;
            p.panel = reinterpret_cast<const std::byte*>(is_half ? half.data() : brain.data());
          }
          kernels_for(isa).product[static_cast<size_t>(format)](p);
          for (int64_t r = 0; r < kRows; ++r) {
            for (int64_t c = 0; c < kOutStride; ++c) {
              const float got = out[static_cast<size_t>(r * kOutStride + c)];
              if (c >= columns) {
                ASSERT_EQ(got, kSentinel);
                continue;
              }
              double sum = accumulate ? kSentinel : 0, bound = 0;
              for (int64_t k = 0; k < kDepth; ++k) {
                const auto at = static_cast<size_t>(k * kPanelWidth + c);
                const double w = dtype == DType::kFloat32   ? panel[at]
                                 : dtype == DType::kFloat16 ? rapt::float16_to_float(half[at])
                                                            : rapt::bfloat16_to_float(brain[at]);
                const double term = w * x[static_cast<size_t>(r * kXStride + k)];
                sum += term;
                bound += std::fabs(term);
              }
              // One rounding of at most half a unit for each product, each sum and the last one.
              ASSERT_NEAR(got, sum, 0x1p-23 * bound * 5 + std::fabs(sum) * 0x1p-23)
                  << to_string(isa) << " " << to_string(dtype) << " row " << r << " column " << c;
            }
          }
        }
      }
    }
  }
}

TEST(EngineKernels, a_row_has_the_same_bits_among_any_number_of_rows) {
  constexpr int64_t kMostRows = 33, kDepth = 171;
  const std::vector<float> x = test::noise(kMostRows * kDepth, 3);
  const std::vector<float> panel = test::noise(kDepth * kPanelWidth, 4);
  for (const rapt::CpuIsa isa : test::levels()) {
    const auto product = [&](int64_t first, int64_t rows, float* out) {
      kernels_for(isa).product[0]({.x = x.data() + first * kDepth,
                                   .x_stride = kDepth,
                                   .num_rows = rows,
                                   .depth = kDepth,
                                   .panel = reinterpret_cast<const std::byte*>(panel.data()),
                                   .out = out,
                                   .out_stride = kPanelWidth,
                                   .num_columns = kPanelWidth,
                                   .accumulate = false,
                                   .scratch = nullptr});
    };
    std::vector<float> alone(kMostRows * kPanelWidth), together(alone.size());
    for (int64_t r = 0; r < kMostRows; ++r) product(r, 1, alone.data() + r * kPanelWidth);
    for (int64_t rows = 1; rows <= kMostRows; ++rows) {
      product(0, rows, together.data());
      ASSERT_EQ(std::memcmp(alone.data(), together.data(),
                            static_cast<size_t>(rows * kPanelWidth) * sizeof(float)),
                0)
          << to_string(isa) << " " << rows;
    }
  }
}

// Blocks whose scales and quants are all different, against their values written out.
TEST(EngineKernels, quantised_products_have_the_bits_of_the_expanded_weights) {
  constexpr int64_t kMostRows = 20, kDepth = 96;
  const std::vector<float> x = test::noise(kMostRows * kDepth, 10);
  const std::vector<float> noise = test::noise(kDepth * kPanelWidth, 11);
  for (const bool is_q4 : {false, true}) {
    const int64_t block_bytes = is_q4 ? kQ4BlockBytes : kQ8BlockBytes;
    std::vector<std::byte> panel(static_cast<size_t>(kDepth / kQuantisedDepth * block_bytes));
    std::vector<float> weights(kDepth * kPanelWidth);
    for (int64_t k = 0; k < kDepth; ++k) {
      std::byte* block = panel.data() + k / kQuantisedDepth * block_bytes;
      for (int64_t lane = 0; lane < kPanelWidth; ++lane) {
        const auto first = static_cast<size_t>(k / kQuantisedDepth * kPanelWidth + lane);
        const uint16_t d = rapt::float_to_float16(noise[first]);
        const uint16_t m = rapt::float_to_float16(noise[first + 500]);
        std::memcpy(block + 2 * lane, &d, 2);
        const auto at = static_cast<size_t>(k * kPanelWidth + lane);
        const int64_t i = k % kQuantisedDepth;
        if (is_q4) {
          const auto q = static_cast<int>((noise[at] + 1) * 8);
          std::memcpy(block + 2 * (kPanelWidth + lane), &m, 2);
          std::byte& pair = block[4 * kPanelWidth + i / 2 * kPanelWidth + lane];
          pair |= static_cast<std::byte>(i % 2 ? q << 4 : q);
          weights[at] =
              rapt::float16_to_float(d) * static_cast<float>(q) + rapt::float16_to_float(m);
        } else {
          const auto q = static_cast<int8_t>(noise[at] * 128);
          std::memcpy(block + 2 * kPanelWidth + i * kPanelWidth + lane, &q, 1);
          weights[at] = rapt::float16_to_float(d) * static_cast<float>(q);
        }
      }
    }
    alignas(64) float scratch[kDepth * kPanelWidth];
    const auto format = static_cast<size_t>(is_q4 ? PanelFormat::kQ4 : PanelFormat::kQ8);
    for (const rapt::CpuIsa isa : test::levels()) {
      for (const int64_t rows : {int64_t{1}, int64_t{3}, int64_t{8}, kMostRows}) {
        std::vector<float> expected(kMostRows * kPanelWidth), got(expected.size());
        PanelProduct p{.x = x.data(),
                       .x_stride = kDepth,
                       .num_rows = rows,
                       .depth = kDepth,
                       .panel = reinterpret_cast<const std::byte*>(weights.data()),
                       .out = expected.data(),
                       .out_stride = kPanelWidth,
                       .num_columns = kPanelWidth,
                       .accumulate = false,
                       .scratch = scratch};
        kernels_for(isa).product[0](p);
        p.panel = panel.data();
        p.out = got.data();
        kernels_for(isa).product[format](p);
        EXPECT_EQ(got, expected) << to_string(isa) << " q4 " << is_q4 << " rows " << rows;
      }
      for (const int64_t lane : {0, 13, 31}) {
        std::vector<float> values(kDepth);
        kernels_for(isa).expand_lane[format](panel.data(), kDepth, lane, values.data());
        for (int64_t k = 0; k < kDepth; ++k)
          ASSERT_EQ(values[static_cast<size_t>(k)],
                    weights[static_cast<size_t>(k * kPanelWidth + lane)]);
      }
    }
  }
}

TEST(EngineKernels, rms_norm_agrees_with_its_definition) {
  for (const size_t n : {1, 16, 64, 75}) {
    const std::vector<float> x = test::noise(n, 5), weight = test::noise(n, 6);
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    for (const rapt::CpuIsa isa : test::levels()) {
      std::vector<float> out(n);
      kernels_for(isa).rms_norm(x.data(), weight.data(), 1e-5f, static_cast<int64_t>(n),
                                out.data());
      for (size_t i = 0; i < n; ++i) ASSERT_NEAR(out[i], x[i] * scale * weight[i], 2e-6);
    }
  }
}

TEST(EngineKernels, swiglu_agrees_with_its_definition_over_the_whole_range) {
  std::vector<float> gate = {0, -0.0f, 1e-30f, -1e-30f, 88, -88, 200, -200, 1e30f};
  for (const float v : test::noise(1000, 7)) gate.push_back(v * 20);
  const std::vector<float> up = test::noise(gate.size(), 8);
  for (const rapt::CpuIsa isa : test::levels()) {
    std::vector<float> out = gate;
    kernels_for(isa).swiglu(out.data(), up.data(), static_cast<int64_t>(out.size()));
    for (size_t i = 0; i < gate.size(); ++i) {
      const double expected = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i];
      ASSERT_NEAR(out[i], expected, 1e-6 * std::fabs(expected) + 1e-34) << gate[i];
    }
  }
}

TEST(EngineKernels, rotate_turns_pairs_and_halves_by_their_angles) {
  const std::vector<float> cosines = {std::cos(0.3f), std::cos(2.0f)};
  const std::vector<float> sines = {std::sin(0.3f), std::sin(2.0f)};
  for (const rapt::CpuIsa isa : test::levels()) {
    std::vector<float> pairs = {1, 0, 0, 2}, halves = {1, 0, 0, 2};
    kernels_for(isa).rotate(pairs.data(), pairs.data() + 1, 2, cosines.data(), sines.data(), 2);
    kernels_for(isa).rotate(halves.data(), halves.data() + 2, 1, cosines.data(), sines.data(), 2);
    const float expected_pairs[] = {cosines[0], sines[0], -2 * sines[1], 2 * cosines[1]};
    const float expected_halves[] = {cosines[0], -2 * sines[1], sines[0], 2 * cosines[1]};
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(pairs[static_cast<size_t>(i)], expected_pairs[i], 1e-6);
      EXPECT_NEAR(halves[static_cast<size_t>(i)], expected_halves[i], 1e-6);
    }
  }
}

TEST(EngineKernels, widen_is_exact_for_every_16_bit_pattern) {
  std::vector<uint16_t> bits(65536 + 3);  // the last three are done one by one
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  std::vector<float> values(bits.size());
  for (const rapt::CpuIsa isa : test::levels()) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      kernels_for(isa).widen(bits.data(), dtype, static_cast<int64_t>(bits.size()), values.data());
      for (size_t i = 0; i < bits.size(); ++i) {
        const float expected = dtype == DType::kFloat16 ? rapt::float16_to_float(bits[i])
                                                        : rapt::bfloat16_to_float(bits[i]);
        if (std::isnan(expected))
          ASSERT_TRUE(std::isnan(values[i])) << to_string(isa) << " " << i;
        else
          ASSERT_EQ(values[i], expected) << to_string(isa) << " " << i;
      }
    }
  }
}

TEST(EngineKernels, narrow_rounds_to_nearest_even) {
  std::vector<float> values = test::noise(997, 9);
  for (size_t i = 0; i < values.size(); i += 2) values[i] *= 1e-5f;  // fp16 subnormals
  // Halfway between neighbours: 1 + 2^-11 and 1 + 3 * 2^-11 in fp16, 2^-8 in bf16; and the largest.
  for (const float v : {1 + 0x1p-11f, 1 + 0x3p-11f, 1 + 0x1p-8f, 1 + 0x3p-8f, 65519.0f, 65520.0f,
                        3e38f, -0.0f, std::numeric_limits<float>::infinity()})
    values.push_back(v);
  std::vector<uint16_t> bits(values.size());
  for (const rapt::CpuIsa isa : test::levels()) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      kernels_for(isa).narrow(values.data(), dtype, static_cast<int64_t>(values.size()),
                              bits.data());
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t expected = dtype == DType::kFloat16 ? rapt::float_to_float16(values[i])
                                                           : rapt::float_to_bfloat16(values[i]);
        ASSERT_EQ(bits[i], expected) << to_string(isa) << " " << values[i];
      }
    }
  }
}

}  // namespace
}  // namespace llm
