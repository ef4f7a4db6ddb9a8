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

// Panels of every format with their values written out; blocks' scales and quants all differ.
struct Panels {
  PanelFormat format;
  std::vector<std::byte> bytes;
  std::vector<double> values;  // [depth, num_panels * 32]
};

Panels make_panels(PanelFormat format, int64_t num_panels, int64_t depth) {
  const int64_t width = num_panels * kPanelWidth;
  const std::vector<float> noise = test::noise(static_cast<size_t>(depth * width), 11);
  Panels panels{format, {}, std::vector<double>(noise.size())};
  const auto put = [&](int64_t at, const auto& value) {
    if (panels.bytes.size() < static_cast<size_t>(at) + sizeof(value))
      panels.bytes.resize(static_cast<size_t>(at) + sizeof(value));
    std::memcpy(panels.bytes.data() + at, &value, sizeof(value));
  };
  for (int64_t column = 0; column < width; ++column) {
    const int64_t panel = column / kPanelWidth, lane = column % kPanelWidth;
    for (int64_t k = 0; k < depth; ++k) {
      const auto at = static_cast<size_t>(k * width + column);
      double& value = panels.values[at];
      const int64_t element = (panel * depth + k) * kPanelWidth + lane;
      const int64_t block = panel * (depth / kQuantisedDepth) + k / kQuantisedDepth;
      const auto first = static_cast<size_t>(k / kQuantisedDepth * width + column);
      const uint16_t d = rapt::float_to_float16(noise[first]);
      const uint16_t m = rapt::float_to_float16(noise[first + 500]);
      const int64_t i = k % kQuantisedDepth;
      switch (format) {
        case PanelFormat::kFloat32:
          put(element * 4, noise[at]);
          value = noise[at];
          break;
        case PanelFormat::kFloat16:
          put(element * 2, rapt::float_to_float16(noise[at]));
          value = rapt::float16_to_float(rapt::float_to_float16(noise[at]));
          break;
        case PanelFormat::kBFloat16:
          put(element * 2, rapt::float_to_bfloat16(noise[at]));
          value = rapt::bfloat16_to_float(rapt::float_to_bfloat16(noise[at]));
          break;
        case PanelFormat::kQ8: {
          const auto q = static_cast<int8_t>(noise[at] * 128);
          put(block * kQ8BlockBytes + 2 * lane, d);
          put(block * kQ8BlockBytes + (2 + i) * kPanelWidth + lane, q);
          value = static_cast<double>(rapt::float16_to_float(d)) * q;
          break;
        }
        case PanelFormat::kQ4: {
          const auto q = static_cast<uint32_t>((noise[at] + 1) * 8);
          put(block * kQ4BlockBytes + 2 * lane, d);
          put(block * kQ4BlockBytes + 2 * (kPanelWidth + lane), m);
          const int64_t word_at =
              block * kQ4BlockBytes + 4 * (kPanelWidth + i / kQ4Word * kPanelWidth + lane);
          if (i % kQ4Word == 0) put(word_at, uint32_t{0});
          uint32_t word;
          std::memcpy(&word, panels.bytes.data() + word_at, 4);
          put(word_at, word | q << 4 * (i % kQ4Word));
          value = static_cast<double>(rapt::float16_to_float(d)) * q + rapt::float16_to_float(m);
          break;
        }
      }
    }
  }
  return panels;
}

constexpr PanelFormat kAllFormats[] = {PanelFormat::kFloat32, PanelFormat::kFloat16,
                                       PanelFormat::kBFloat16, PanelFormat::kQ8, PanelFormat::kQ4};

// Products of 80 columns, which end in the third panel, of 9 blocks: an odd number.
struct ProductCase {
  static constexpr int64_t kMostRows = 33, kDepth = 9 * kQuantisedDepth, kColumns = 80;
  static constexpr int64_t kXStride = kDepth + 16, kOutStride = kColumns + 3;

  explicit ProductCase(PanelFormat format)
      : panels(make_panels(format, 3, kDepth)), x(test::noise(kMostRows * kXStride, 10)) {}

  // Rows [first, first + rows), each as long as kOutStride, which must hold kSentinel.
  std::vector<float> product(rapt::CpuIsa isa, int64_t first, int64_t rows,
                             bool accumulate = false) const {
    const Kernels& kernels = kernels_for(isa);
    std::vector<float> prepared, out(static_cast<size_t>(rows * kOutStride), kSentinel);
    const float* from = x.data() + first * kXStride;
    int64_t stride = kXStride;
    if (panels.format == PanelFormat::kQ4) {
      stride = prepared_floats(kDepth) + 5;
      prepared.resize(static_cast<size_t>(rows * stride));
      for (int64_t r = 0; r < rows; ++r)
        kernels.prepare_q4(from + r * kXStride, kDepth, prepared.data() + r * stride);
      from = prepared.data();
    }
    alignas(64) static float scratch[scratch_floats(kDepth)];
    kernels.product[static_cast<size_t>(panels.format)]({.x = from,
                                                         .x_stride = stride,
                                                         .num_rows = rows,
                                                         .depth = kDepth,
                                                         .panels = panels.bytes.data(),
                                                         .out = out.data(),
                                                         .out_stride = kOutStride,
                                                         .num_columns = kColumns,
                                                         .accumulate = accumulate,
                                                         .scratch = scratch});
    return out;
  }

  Panels panels;
  std::vector<float> x;
};

TEST(EngineKernels, product_agrees_with_fp64) {
  for (const PanelFormat format : kAllFormats) {
    const ProductCase c(format);
    for (const rapt::CpuIsa isa : test::levels()) {
      for (const bool accumulate : {false, true}) {
        const int64_t rows = accumulate ? 17 : 3;
        const std::vector<float> out = c.product(isa, 0, rows, accumulate);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t column = 0; column < c.kOutStride; ++column) {
            const float got = out[static_cast<size_t>(r * c.kOutStride + column)];
            if (column >= c.kColumns) {
              ASSERT_EQ(got, kSentinel);
              continue;
            }
            double sum = accumulate ? kSentinel : 0, bound = 0;
            for (int64_t k = 0; k < c.kDepth; ++k) {
              const double term =
                  c.panels.values[static_cast<size_t>(k * 3 * kPanelWidth + column)] *
                  c.x[static_cast<size_t>(r * c.kXStride + k)];
              sum += term;
              bound += std::fabs(term);
            }
            // One rounding of at most half a unit for each product, each sum and the last one.
            ASSERT_NEAR(got, sum, 0x1p-23 * bound * 5 + std::fabs(sum) * 0x1p-23)
                << to_string(isa) << " format " << static_cast<int>(format) << " row " << r
                << " column " << column;
          }
        }
      }
    }
  }
}

TEST(EngineKernels, a_row_has_the_same_bits_among_any_number_of_rows) {
  for (const PanelFormat format : kAllFormats) {
    const ProductCase c(format);
    for (const rapt::CpuIsa isa : test::levels()) {
      std::vector<float> alone;
      for (int64_t r = 0; r < c.kMostRows; ++r) {
        const std::vector<float> row = c.product(isa, r, 1);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      for (int64_t rows = 1; rows <= c.kMostRows; ++rows) {
        const std::vector<float> together = c.product(isa, 0, rows);
        ASSERT_EQ(std::memcmp(alone.data(), together.data(), together.size() * sizeof(float)), 0)
            << to_string(isa) << " format " << static_cast<int>(format) << " rows " << rows;
      }
    }
  }
}

TEST(EngineKernels, expand_lane_gives_the_values_of_one_output_feature) {
  constexpr int64_t kDepth = 2 * kQuantisedDepth;
  for (const PanelFormat format : kAllFormats) {
    const Panels panels = make_panels(format, 1, kDepth);
    for (const rapt::CpuIsa isa : test::levels()) {
      for (const int64_t lane : {0, 13, 31}) {
        std::vector<float> values(kDepth);
        kernels_for(isa).expand_lane[static_cast<size_t>(format)](panels.bytes.data(), kDepth, lane,
                                                                  values.data());
        for (int64_t k = 0; k < kDepth; ++k)
          ASSERT_EQ(values[static_cast<size_t>(k)],
                    static_cast<float>(panels.values[static_cast<size_t>(k * kPanelWidth + lane)]))
              << to_string(isa) << " format " << static_cast<int>(format) << " " << k;
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
    std::vector<float> out(gate.size());
    kernels_for(isa).swiglu(gate.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double expected = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i];
      ASSERT_NEAR(out[i], expected, 1e-6 * std::fabs(expected) + 1e-34) << gate[i];
    }
  }
}

TEST(EngineKernels, rotate_turns_pairs_and_halves_by_their_angles) {
  for (const int64_t n : {1, 2, 8, 16, 20, 37}) {
    const std::vector<float> head = test::noise(static_cast<size_t>(2 * n), 12);
    std::vector<float> cosines, sines;
    for (int64_t i = 0; i < n; ++i) {
      cosines.push_back(std::cos(0.3f * static_cast<float>(i + 1)));
      sines.push_back(std::sin(0.3f * static_cast<float>(i + 1)));
    }
    for (const rapt::CpuIsa isa : test::levels()) {
      std::vector<float> neighbours = head, halves = head;
      kernels_for(isa).rotate_neighbours(neighbours.data(), cosines.data(), sines.data(), n);
      kernels_for(isa).rotate_halves(halves.data(), cosines.data(), sines.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        const auto expect_turned = [&](const std::vector<float>& turned, int64_t a, int64_t b) {
          const auto at = [](int64_t k) { return static_cast<size_t>(k); };
          const double angle = 0.3 * static_cast<double>(i + 1);
          EXPECT_NEAR(turned[at(a)], head[at(a)] * std::cos(angle) - head[at(b)] * std::sin(angle),
                      1e-6);
          EXPECT_NEAR(turned[at(b)], head[at(a)] * std::sin(angle) + head[at(b)] * std::cos(angle),
                      1e-6);
        };
        expect_turned(neighbours, 2 * i, 2 * i + 1);
        expect_turned(halves, i, i + n);
      }
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
