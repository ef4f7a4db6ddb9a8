// A weight matrix that owns its elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "rapt/dtype.hpp"

namespace llm {

// Row-major, without padding between rows: element (r, c) is data()[r * cols() + c]. A linear
// layer's weight is [out_features, in_features]; a norm's is [1, features]. The first element is
// 64-byte aligned.
class Matrix {
 public:
  static constexpr size_t kAlignment = 64;

  Matrix() = default;  // empty: a weight the model does not have
  // Elements start uninitialised: whoever loads the matrix writes each of them.
  Matrix(rapt::DType dtype, int64_t rows, int64_t cols)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        data_(static_cast<std::byte*>(::operator new(bytes(), std::align_val_t(kAlignment)))) {}

  bool empty() const { return data_ == nullptr; }
  rapt::DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  size_t bytes() const { return static_cast<size_t>(rows_ * cols_) * rapt::size_of(dtype_); }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  // Only for dtype() == kFloat32.
  const float* f32() const { return reinterpret_cast<const float*>(data_.get()); }
  float* f32() { return reinterpret_cast<float*>(data_.get()); }

 private:
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete(data, std::align_val_t(kAlignment));
    }
  };

  rapt::DType dtype_ = rapt::DType::kFloat32;
  int64_t rows_ = 0, cols_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace llm
