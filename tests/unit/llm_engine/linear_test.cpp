#include "llm/engine/linear.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "core/float16.hpp"
#include "unit/llm_engine/levels.hpp"

namespace llm {
namespace {

Matrix make_matrix(int64_t rows, int64_t cols, uint32_t seed, rapt::DType dtype) {
  Matrix matrix(dtype, rows, cols);
  const std::vector<float> values = test::noise(static_cast<size_t>(rows * cols), seed);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == rapt::DType::kFloat32) {
      matrix.f32()[i] = values[i];
    } else {
      const uint16_t bits = rapt::float_to_bfloat16(values[i]);
      std::memcpy(matrix.data() + 2 * i, &bits, 2);
    }
  }
  return matrix;
}

float element(const Matrix& matrix, int64_t row, int64_t col) {
  const int64_t at = row * matrix.cols() + col;
  if (matrix.dtype() == rapt::DType::kFloat32) return matrix.f32()[at];
  uint16_t bits;
  std::memcpy(&bits, matrix.data() + 2 * at, 2);
  return rapt::bfloat16_to_float(bits);
}

// Parts whose rows end within panels, of one type or mixed.
TEST(Linear, is_its_parts_one_after_the_other) {
  constexpr int64_t kCols = 50, kTokens = 6;
  ThreadPool pool(2);
  for (const rapt::DType second : {rapt::DType::kFloat32, rapt::DType::kBFloat16}) {
    for (const rapt::DType first : {rapt::DType::kFloat32, rapt::DType::kBFloat16}) {
      const Matrix a = make_matrix(40, kCols, 1, first), b = make_matrix(7, kCols, 2, second);
      const Linear linear({&a, &b}, pool);
      ASSERT_EQ(linear.rows(), 47);
      Activations x(kTokens, kCols), out(kTokens, 47);
      const std::vector<float> values = test::noise(kTokens * kCols, 3);
      for (int64_t t = 0; t < kTokens; ++t) std::copy_n(values.data() + t * kCols, kCols, x.row(t));
      linear.apply(kernels_for(rapt::host_cpu().isa), pool, x, kTokens, out);
      std::vector<float> row(kCols);
      for (int64_t r = 0; r < 47; ++r) {
        linear.copy_row(r, row.data());
        for (int64_t k = 0; k < kCols; ++k)
          ASSERT_EQ(row[static_cast<size_t>(k)], r < 40 ? element(a, r, k) : element(b, r - 40, k));
        for (int64_t t = 0; t < kTokens; ++t) {
          double sum = 0;
          for (int64_t k = 0; k < kCols; ++k)
            sum += static_cast<double>(row[static_cast<size_t>(k)]) * x.row(t)[k];
          ASSERT_NEAR(out.row(t)[r], sum, 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace llm
