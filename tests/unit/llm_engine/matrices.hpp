// Weights of every format.
#pragma once

#include <cstring>
#include <vector>

#include "core/float16.hpp"
#include "llm/model/matrix.hpp"
#include "unit/llm_engine/levels.hpp"

namespace llm::test {

// Any bytes are a quantised matrix, but scales should be small numbers: exponent bits of fp16 that
// leave values near one.
inline Matrix make_matrix(int64_t rows, int64_t cols, uint32_t seed, ElementFormat format) {
  Matrix matrix(format, rows, cols);
  const std::vector<float> values = noise(static_cast<size_t>(rows * cols), seed);
  const FormatInfo& info = info_of(format);
  for (size_t i = 0; i < matrix.bytes(); ++i)
    matrix.data()[i] =
        static_cast<std::byte>(static_cast<int>((values[i % values.size()] + 1) * 127));
  if (format == ElementFormat::kFloat32) std::memcpy(matrix.data(), values.data(), matrix.bytes());
  if (format == ElementFormat::kBFloat16) {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = rapt::float_to_bfloat16(values[i]);
      std::memcpy(matrix.data() + 2 * i, &bits, 2);
    }
  }
  if (format == ElementFormat::kFloat16) {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = rapt::float_to_float16(values[i]);
      std::memcpy(matrix.data() + 2 * i, &bits, 2);
    }
  }
  if (info.block_elems == 1) return matrix;
  const int64_t scale_at = format == ElementFormat::kQ6_K ? 208 : 0;
  for (int64_t block = 0; block < rows * cols / info.block_elems; ++block) {
    const uint16_t d = rapt::float_to_float16(values[static_cast<size_t>(block)] / 16);
    std::memcpy(matrix.data() + block * info.block_bytes + scale_at, &d, 2);
    if (format == ElementFormat::kQ4_1)
      std::memcpy(matrix.data() + block * info.block_bytes + 2, &d, 2);
  }
  return matrix;
}

// By the loader's arithmetic.
inline std::vector<float> values_of(const Matrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.rows() * matrix.cols()));
  to_float(matrix.format(), {matrix.data(), matrix.bytes()}, values);
  return values;
}

}  // namespace llm::test
