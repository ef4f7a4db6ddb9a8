// A weight matrix that owns its elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "llm/model/element_format.hpp"

namespace llm {

// Row-major, without padding between rows: element (r, c) of a plain format is number
// r * cols() + c; a quantised row is whole blocks. A linear layer's weight is
// [out_features, in_features]; a norm's is [1, features]. The first element is 64-byte aligned.
class Matrix {
 public:
  static constexpr size_t kAlignment = 64;

  Matrix() = default;  // empty: a weight the model does not have
  // Elements start uninitialised: whoever loads the matrix writes each of them.
  Matrix(ElementFormat format, int64_t rows, int64_t cols)
      : format_(format),
        rows_(rows),
        cols_(cols),
        data_(static_cast<std::byte*>(::operator new(bytes(), std::align_val_t(kAlignment)))) {}

  bool empty() const { return data_ == nullptr; }
  ElementFormat format() const { return format_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t row_bytes() const {
    return cols_ / info_of(format_).block_elems * info_of(format_).block_bytes;
  }
  size_t bytes() const { return static_cast<size_t>(rows_ * row_bytes()); }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  // Only for format() == kFloat32.
  const float* f32() const { return reinterpret_cast<const float*>(data_.get()); }
  float* f32() { return reinterpret_cast<float*>(data_.get()); }

 private:
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete(data, std::align_val_t(kAlignment));
    }
  };

  ElementFormat format_ = ElementFormat::kFloat32;
  int64_t rows_ = 0, cols_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace llm
