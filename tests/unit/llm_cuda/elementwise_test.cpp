#include "llm/cuda/elementwise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "core/float16.hpp"
#include "llm/cuda/device_text.hpp"
#include "llm/cuda/nvrtc.hpp"
#include "unit/llm_cuda/emulated_gpu.hpp"
#include "unit/llm_engine/levels.hpp"

namespace llm {
namespace {

using rapt::DeviceBuffer;
using rapt::DType;
using test::noise;
using test::to_device;
using test::to_host;

template <typename T>
T* pointer(const DeviceBuffer& buffer) {
  return static_cast<T*>(buffer.data());
}

// Each buffer ends at an unreadable page, and begins as NaN.
class ElementwiseKernels : public testing::Test {
 protected:
  static void SetUpTestSuite() { test::use_emulated_gpu(); }

  DeviceBuffer floats(int64_t count) { return {context_, static_cast<size_t>(count) * 4}; }

  rapt::Context context_{{.device = test::kEmulatedGpu}};
  cuda::Context gpu_{test::kOrdinal};
  cuda::Elementwise kernels_{gpu_, test::kComputeCapability};
  cuda::CurrentContext current_{gpu_};
};

TEST_F(ElementwiseKernels, embed_takes_the_tokens_rows) {
  constexpr int64_t kDim = 72;
  const std::vector<float> table = noise(50 * kDim, 1);
  const std::vector<int32_t> tokens = {7, 0, 49, 7, 31};
  const DeviceBuffer on_device = to_device(context_, table), ids = to_device(context_, tokens);
  const DeviceBuffer out = floats(std::ssize(tokens) * kDim);
  kernels_.embed(pointer<float>(out), pointer<float>(on_device), pointer<int32_t>(ids),
                 std::ssize(tokens), kDim);
  const std::vector<float> rows = to_host<float>(out);
  for (size_t t = 0; t < tokens.size(); ++t)
    for (int64_t i = 0; i < kDim; ++i)
      ASSERT_EQ(rows[t * kDim + static_cast<size_t>(i)],
                table[static_cast<size_t>(tokens[t] * kDim + i)]);
}

// Rows of less than a warp, of whole warps, and of more than a block has threads.
TEST_F(ElementwiseKernels, rms_norm_is_its_formula_of_all_rows_and_of_chosen_ones) {
  constexpr double kEpsilon = 1e-5;
  for (const int64_t dim : {8, 64, 100, 576, 1300}) {
    constexpr int64_t kRows = 4;
    const std::vector<float> x = noise(static_cast<size_t>(kRows * dim), 2);
    const std::vector<float> weight = noise(static_cast<size_t>(dim), 3);
    const std::vector<int32_t> chosen = {3, 1};
    const DeviceBuffer on_device = to_device(context_, x), weights = to_device(context_, weight);
    const DeviceBuffer rows = to_device(context_, chosen);
    for (const bool all : {true, false}) {
      const int64_t num_rows = all ? kRows : std::ssize(chosen);
      const DeviceBuffer out = floats(num_rows * dim);
      kernels_.rms_norm(pointer<float>(out), pointer<float>(on_device), pointer<float>(weights),
                        all ? nullptr : pointer<int32_t>(rows), num_rows, dim, kEpsilon);
      const std::vector<float> normed = to_host<float>(out);
      for (int64_t r = 0; r < num_rows; ++r) {
        const float* from = x.data() + (all ? r : chosen[static_cast<size_t>(r)]) * dim;
        double squares = 0;
        for (int64_t i = 0; i < dim; ++i) squares += static_cast<double>(from[i]) * from[i];
        const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + kEpsilon);
        for (int64_t i = 0; i < dim; ++i) {
          const double expected = from[i] * scale * weight[static_cast<size_t>(i)];
          ASSERT_NEAR(normed[static_cast<size_t>(r * dim + i)], expected, 1e-6) << dim;
        }
      }
    }
  }
}

// A pair is a complex number, and turning it a product; values come as they are.
TEST_F(ElementwiseKernels, rotate_turns_queries_and_keys_and_narrows_all_heads) {
  constexpr int64_t kTokens = 5, kHeads = 7, kRotated = 5;
  for (const int64_t head_dim : {8, 64}) {
    const int64_t half = head_dim / 2, num_elems = kTokens * kHeads * head_dim;
    const std::vector<float> qkv = noise(static_cast<size_t>(num_elems), 4);
    std::vector<float> angles = noise(static_cast<size_t>(kTokens * half), 5), cosines, sines;
    for (float& angle : angles) {
      angle *= 3;
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
    const DeviceBuffer from = to_device(context_, qkv), cos = to_device(context_, cosines),
                       sin = to_device(context_, sines);
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      for (const bool is_halves : {false, true}) {
        const DeviceBuffer out(context_, static_cast<size_t>(num_elems) * 2);
        kernels_.rotate({.heads = pointer<uint16_t>(out),
                         .qkv = pointer<float>(from),
                         .cosines = pointer<float>(cos),
                         .sines = pointer<float>(sin),
                         .num_tokens = kTokens,
                         .num_heads = kHeads,
                         .num_rotated = kRotated,
                         .head_dim = head_dim,
                         .is_halves = is_halves,
                         .dtype = dtype});
        const std::vector<uint16_t> heads = to_host<uint16_t>(out);
        for (int64_t head = 0; head < kTokens * kHeads; ++head) {
          for (int64_t i = 0; i < half; ++i) {
            const auto first = static_cast<size_t>(head * head_dim + (is_halves ? i : 2 * i));
            const size_t second = first + static_cast<size_t>(is_halves ? half : 1);
            std::complex<double> pair(qkv[first], qkv[second]);
            if (head % kHeads < kRotated)
              pair *= std::polar(
                  1.0, static_cast<double>(angles[static_cast<size_t>(head / kHeads * half + i)]));
            const bool is_half = dtype == DType::kFloat16;
            const auto value = [&](size_t at) {
              return is_half ? rapt::float16_to_float(heads[at])
                             : rapt::bfloat16_to_float(heads[at]);
            };
            const double ulp = is_half ? 0x1p-11 : 0x1p-8;  // half of one, relative
            ASSERT_NEAR(value(first), pair.real(), ulp * std::fabs(pair.real()) + 1e-6);
            ASSERT_NEAR(value(second), pair.imag(), ulp * std::fabs(pair.imag()) + 1e-6);
          }
        }
      }
    }
  }
}

TEST_F(ElementwiseKernels, widen_gives_the_16_bit_formats_values) {
  std::vector<uint16_t> bits;
  for (int i = 0; i < 1001; ++i) bits.push_back(static_cast<uint16_t>(i * 65));
  const DeviceBuffer from = to_device(context_, bits), out = floats(std::ssize(bits));
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    kernels_.widen(pointer<float>(out), pointer<uint16_t>(from), std::ssize(bits), dtype);
    const std::vector<float> values = to_host<float>(out);
    const int mantissa_bits = dtype == DType::kFloat16 ? 10 : 7;
    const int bias = dtype == DType::kFloat16 ? 15 : 127;
    for (size_t i = 0; i < bits.size(); ++i) {
      const int exponent = (bits[i] & 0x7fff) >> mantissa_bits;
      const int mantissa = bits[i] & ((1 << mantissa_bits) - 1);
      if (exponent == 2 * bias + 1) {
        ASSERT_FALSE(std::isfinite(values[i]));
        continue;
      }
      const double magnitude = std::ldexp((exponent ? 1 << mantissa_bits : 0) + mantissa,
                                          std::max(exponent, 1) - bias - mantissa_bits);
      ASSERT_EQ(values[i], static_cast<float>(bits[i] & 0x8000 ? -magnitude : magnitude)) << i;
    }
  }
}

TEST_F(ElementwiseKernels, swiglu_is_its_formula_and_finite_far_out) {
  constexpr int64_t kTokens = 3, kHidden = 172;
  std::vector<float> gate_up = noise(2 * kTokens * kHidden, 6);
  for (size_t i = 0; i < gate_up.size(); ++i) gate_up[i] *= i % 5 == 0 ? 200.f : 5.f;
  const DeviceBuffer from = to_device(context_, gate_up), out = floats(kTokens * kHidden);
  kernels_.swiglu(pointer<float>(out), pointer<float>(from), kTokens, kHidden);
  const std::vector<float> values = to_host<float>(out);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t i = 0; i < kHidden; ++i) {
      const auto at = static_cast<size_t>(2 * t * kHidden + i);
      const double gate = gate_up[at], up = gate_up[at + kHidden];
      const double expected = gate / (1 + std::exp(-gate)) * up;
      ASSERT_NEAR(values[static_cast<size_t>(t * kHidden + i)], expected,
                  1e-6 * std::fabs(expected) + 1e-30);
    }
  }
}

#if HAS_TOOLKIT
// NVIDIA's compiler takes the text as it stands.
TEST(ElementwiseText, compiles_for_every_architecture) {
  unsetenv("RAPT_NVRTC");
  for (const int32_t compute_capability : {80, 86, 89, 90, 100, 120}) {
    const std::string cubin = cuda::compile(cuda::embedded_headers()[0].text, compute_capability);
    EXPECT_EQ(cubin.substr(1, 3), "ELF") << compute_capability;
    for (const char* kernel :
         {"llm_embed", "llm_rms_norm", "llm_rotate", "llm_widen", "llm_swiglu"})
      EXPECT_NE(cubin.find(kernel), cubin.npos) << kernel;
  }
}
#endif

}  // namespace
}  // namespace llm
