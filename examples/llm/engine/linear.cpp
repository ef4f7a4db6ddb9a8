#include "llm/engine/linear.hpp"

#include <algorithm>
#include <cstring>

namespace llm {
namespace {

// The row of the parts put together, or nothing past the last.
struct PartRow {
  const Matrix* part = nullptr;
  int64_t row = 0;
};

PartRow find_row(std::initializer_list<const Matrix*> parts, int64_t row) {
  for (const Matrix* part : parts) {
    if (row < part->rows()) return {part, row};
    row -= part->rows();
  }
  return {};
}

template <typename Element>
void pack_lane(const Element* row, int64_t cols, Element* lane) {
  for (int64_t k = 0; k < cols; ++k) lane[k * kPanelWidth] = row ? row[k] : Element{};
}

float widen_one(uint16_t bits, rapt::DType dtype) {
  float value;
  kernels_for(rapt::CpuIsa::kBaseline).widen(&bits, dtype, 1, &value);
  return value;
}

}  // namespace

Activations::Activations(int64_t num_rows, int64_t cols)
    : num_rows_(num_rows),
      stride_((cols + 15) / 16 * 16 + 16),
      values_(static_cast<size_t>(num_rows * stride_)) {}

Linear::Linear(std::initializer_list<const Matrix*> parts, ThreadPool& pool)
    : cols_((*parts.begin())->cols()), dtype_((*parts.begin())->dtype()) {
  for (const Matrix* part : parts) {
    rows_ += part->rows();
    if (part->dtype() != dtype_) dtype_ = rapt::DType::kFloat32;  // holds the others exactly
  }
  const int64_t num_panels = (rows_ + kPanelWidth - 1) / kPanelWidth;
  panels_ = Matrix(dtype_, num_panels, cols_ * kPanelWidth);
  pool.run(static_cast<int32_t>(num_panels), [&](int32_t panel) {
    std::vector<float> widened(static_cast<size_t>(cols_));
    for (int64_t lane = 0; lane < kPanelWidth; ++lane) {
      const auto [part, row] = find_row(parts, panel * kPanelWidth + lane);
      const int64_t to = panel * kPanelWidth * cols_ + lane;
      const auto* bits =
          part ? reinterpret_cast<const uint16_t*>(part->data()) + row * cols_ : nullptr;
      if (dtype_ != rapt::DType::kFloat32) {
        pack_lane(bits, cols_, reinterpret_cast<uint16_t*>(panels_.data()) + to);
      } else if (part && part->dtype() != rapt::DType::kFloat32) {
        kernels_for(rapt::CpuIsa::kBaseline).widen(bits, part->dtype(), cols_, widened.data());
        pack_lane<float>(widened.data(), cols_, panels_.f32() + to);
      } else {
        pack_lane(part ? part->f32() + row * cols_ : nullptr, cols_, panels_.f32() + to);
      }
    }
  });
}

void Linear::apply(const Kernels& kernels, ThreadPool& pool, const Activations& x, int64_t num_rows,
                   Activations& out, bool accumulate) const {
  const auto product = dtype_ == rapt::DType::kFloat32    ? kernels.product_f32
                       : dtype_ == rapt::DType::kBFloat16 ? kernels.product_bf16
                                                          : kernels.product_f16;
  const int64_t panel_bytes = cols_ * kPanelWidth * static_cast<int64_t>(rapt::size_of(dtype_));
  // A task is some panels: for one row of a small matrix a panel is too little to hand over.
  constexpr int64_t kGrainFlops = 1 << 16;
  const int64_t panel_flops = 2 * cols_ * kPanelWidth * std::max<int64_t>(num_rows, 1);
  const int64_t grain = (kGrainFlops + panel_flops - 1) / panel_flops;
  pool.run_ranges(panels_.rows(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t column = panel * kPanelWidth;
      product({.x = x.row(0),
               .x_stride = x.stride(),
               .num_rows = num_rows,
               .depth = cols_,
               .panel = panels_.data() + panel * panel_bytes,
               .out = out.row(0) + column,
               .out_stride = out.stride(),
               .num_columns = std::min(kPanelWidth, rows_ - column),
               .accumulate = accumulate});
    }
  });
}

void Linear::copy_row(int64_t r, float* values) const {
  const int64_t first = r / kPanelWidth * kPanelWidth * cols_ + r % kPanelWidth;
  for (int64_t k = 0; k < cols_; ++k) {
    const int64_t at = first + k * kPanelWidth;
    values[k] = dtype_ == rapt::DType::kFloat32
                    ? panels_.f32()[at]
                    : widen_one(reinterpret_cast<const uint16_t*>(panels_.data())[at], dtype_);
  }
}

}  // namespace llm
