#include "llm/engine/linear.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "unit/llm_engine/levels.hpp"
#include "unit/llm_engine/matrices.hpp"

namespace llm {
namespace {

using test::make_matrix;
using test::values_of;

// Parts whose rows end within panels, of one format or mixed; many rows and few.
TEST(Linear, is_its_parts_one_after_the_other) {
  constexpr int64_t kCols = 256, kMostTokens = 20;
  constexpr ElementFormat kFormats[] = {ElementFormat::kFloat32, ElementFormat::kBFloat16,
                                        ElementFormat::kQ8_0,    ElementFormat::kQ4_0,
                                        ElementFormat::kQ4_1,    ElementFormat::kQ6_K};
  ThreadPool pool(2);
  WeightMemory memory;
  const Kernels& kernels = kernels_for(rapt::host_cpu().isa);
  for (const ElementFormat first : kFormats) {
    for (const ElementFormat second : kFormats) {
      const Matrix a = make_matrix(40, kCols, 1, first), b = make_matrix(7, kCols, 2, second);
      std::vector<float> weights = values_of(a);
      const std::vector<float> tail = values_of(b);
      weights.insert(weights.end(), tail.begin(), tail.end());
      const Linear linear({&a, &b}, pool, memory);
      ASSERT_EQ(linear.rows(), 47);
      Activations x(kMostTokens, kCols);
      const std::vector<float> values = test::noise(kMostTokens * kCols, 3);
      for (int64_t t = 0; t < kMostTokens; ++t)
        std::copy_n(values.data() + t * kCols, kCols, x.row(t));
      for (int64_t r = 0; r < 47; ++r) {
        std::vector<float> row(kCols);
        linear.copy_row(kernels, r, row.data());
        ASSERT_EQ(
            row, std::vector<float>(weights.begin() + r * kCols, weights.begin() + (r + 1) * kCols))
            << info_of(first).name << " " << info_of(second).name << " row " << r;
      }
      for (const int64_t tokens : {int64_t{2}, kMostTokens}) {
        Activations out(tokens, 47);
        const auto copy = [&](int64_t r, float* row) { std::copy_n(x.row(r), kCols, row); };
        linear.apply(kernels, pool, copy, tokens, out);
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t r = 0; r < 47; ++r) {
            double sum = 0, bound = 0;
            for (int64_t k = 0; k < kCols; ++k) {
              const double term =
                  static_cast<double>(weights[static_cast<size_t>(r * kCols + k)]) * x.row(t)[k];
              sum += term;
              bound += std::fabs(term);
            }
            ASSERT_NEAR(out.row(t)[r], sum, 1e-6 * bound);
          }
        }
      }
    }
  }
}

TEST(Linear, counts_its_bytes_as_they_are_stored) {
  ThreadPool pool(1);
  WeightMemory memory;
  const Matrix q4 = make_matrix(64, 256, 1, ElementFormat::kQ4_1);
  const Matrix q8 = make_matrix(64, 256, 1, ElementFormat::kQ8_0);
  const Matrix bf16 = make_matrix(5, 256, 1, ElementFormat::kBFloat16);
  for (const Matrix* matrix : {&q4, &q8, &bf16})
    EXPECT_EQ(Linear({matrix}, pool, memory).weight_bytes(), static_cast<int64_t>(matrix->bytes()));
}

TEST(WeightMemory, gives_lines_of_its_own_one_after_the_other) {
  WeightMemory memory;
  std::vector<std::span<std::byte>> taken;
  const std::byte* end = nullptr;
  for (const int64_t bytes : {100, 64, 1 << 20, 40 << 20, 1, 1 << 20}) {
    std::byte* data = memory.take(bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    if (bytes == 64 || bytes == 1 << 20) {
      EXPECT_EQ(data, end) << bytes;
    }
    end = data + (bytes + 63) / 64 * 64;
    taken.emplace_back(data, static_cast<size_t>(bytes));
    std::memset(data, static_cast<int>(taken.size()), static_cast<size_t>(bytes));
  }
  for (size_t i = 0; i < taken.size(); ++i)
    for (const std::byte value : taken[i]) ASSERT_EQ(static_cast<size_t>(value), i + 1);
  size_t bytes = 0;
  for (const auto run : memory.runs()) bytes += run.size();
  EXPECT_EQ(bytes, size_t{128 + 64 + (1 << 20) + (40 << 20) + 64 + (1 << 20)});
}

}  // namespace
}  // namespace llm
