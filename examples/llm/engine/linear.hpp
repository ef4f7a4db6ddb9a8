// Linear layers: weights in panels (kernels.hpp), multiplied on the pool.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "llm/engine/kernels.hpp"
#include "llm/engine/thread_pool.hpp"
#include "llm/model/matrix.hpp"

namespace llm {

// Rows of activations, fp32. A row's stride is padded off multiples of 4 KiB, at which all rows
// would compete for the same few lines of the first-level cache.
class Activations {
 public:
  Activations() = default;
  Activations(int64_t num_rows, int64_t cols);

  int64_t num_rows() const { return num_rows_; }
  int64_t stride() const { return stride_; }
  float* row(int64_t r) { return values_.data() + r * stride_; }
  const float* row(int64_t r) const { return values_.data() + r * stride_; }

 private:
  int64_t num_rows_ = 0, stride_ = 0;
  std::vector<float> values_;
};

// y = W x, where W's rows are those of several matrices one after the other (q, k and v, say).
class Linear {
 public:
  Linear() = default;
  // All parts have the same number of columns, of fp32, fp16 or bf16. Kept in their dtype if they
  // have the same one, else in fp32.
  Linear(std::initializer_list<const Matrix*> parts, ThreadPool& pool);

  int64_t rows() const { return rows_; }  // output features
  int64_t cols() const { return cols_; }  // input features
  // Bytes a product reads: weights as stored, without padding.
  int64_t weight_bytes() const {
    return rows_ * cols_ * static_cast<int64_t>(rapt::size_of(dtype_));
  }

  // out[r, :] (+)= W x[r, :] for r in [0, num_rows).
  void apply(const Kernels& kernels, ThreadPool& pool, const Activations& x, int64_t num_rows,
             Activations& out, bool accumulate = false) const;
  // Row `r` of W as fp32: an embedding.
  void copy_row(int64_t r, float* values) const;

 private:
  int64_t rows_ = 0, cols_ = 0;
  rapt::DType dtype_ = rapt::DType::kFloat32;
  Matrix panels_;  // [num_panels, cols * 32]
};

}  // namespace llm
