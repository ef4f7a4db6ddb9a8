// Linear layers: weights in panels (kernels.hpp), multiplied on the pool.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <vector>

#include "llm/engine/kernels.hpp"
#include "llm/engine/large_memory.hpp"
#include "llm/engine/thread_pool.hpp"
#include "llm/model/matrix.hpp"

namespace llm {

// Memory for whole vectors, uninitialised.
template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t count)
      : data_(static_cast<T*>(::operator new(static_cast<size_t>(count) * sizeof(T), kAlignment))) {
  }

  T* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
};

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
  // All parts have the same number of columns. Weights keep their format, or one that holds the
  // same values in as many bytes; Q6_K, and parts of different formats, become fp32. They go to
  // `memory`, which must outlive this.
  Linear(std::initializer_list<const Matrix*> parts, ThreadPool& pool, WeightMemory& memory);

  int64_t rows() const { return rows_; }  // output features
  int64_t cols() const { return cols_; }  // input features
  // Bytes a product reads, without padding.
  int64_t weight_bytes() const { return rows_ * panel_bytes() / kPanelWidth; }

  // Writes row r of the input, [cols]. May be called for the same row by several threads.
  using MakeRow = std::function<void(int64_t r, float* row)>;

  // out[r, :] (+)= W x[r, :] for r in [0, num_rows), where make_row(r) writes x[r, :].
  void apply(const Kernels& kernels, ThreadPool& pool, const MakeRow& make_row, int64_t num_rows,
             Activations& out, bool accumulate = false) const;
  // Row `r` of W as fp32: an embedding.
  void copy_row(const Kernels& kernels, int64_t r, float* values) const;

 private:
  int64_t panel_bytes() const;
  void pack_row(const Matrix* part, int64_t part_row, std::byte* panel, int64_t lane) const;

  int64_t rows_ = 0, cols_ = 0, num_panels_ = 0;
  PanelFormat format_ = PanelFormat::kFloat32;
  std::byte* panels_ = nullptr;
};

}  // namespace llm
