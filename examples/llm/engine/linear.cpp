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

// The panel format that holds the values of `format`.
PanelFormat panel_format(ElementFormat format) {
  switch (format) {
    case ElementFormat::kFloat16:
      return PanelFormat::kFloat16;
    case ElementFormat::kBFloat16:
      return PanelFormat::kBFloat16;
    case ElementFormat::kQ8_0:
      return PanelFormat::kQ8;
    case ElementFormat::kQ4_0:
    case ElementFormat::kQ4_1:
      return PanelFormat::kQ4;
    case ElementFormat::kFloat32:
    case ElementFormat::kQ6_K:
      break;
  }
  return PanelFormat::kFloat32;
}

// Bytes of `depth` input features of a panel.
int64_t bytes_of(PanelFormat format, int64_t depth) {
  switch (format) {
    case PanelFormat::kFloat32:
      return depth * kPanelWidth * 4;
    case PanelFormat::kFloat16:
    case PanelFormat::kBFloat16:
      return depth * kPanelWidth * 2;
    case PanelFormat::kQ8:
      return depth / kQuantisedDepth * kQ8BlockBytes;
    case PanelFormat::kQ4:
      return depth / kQuantisedDepth * kQ4BlockBytes;
  }
  return 0;
}

template <typename Element>
void pack_lane(const void* row, int64_t cols, std::byte* panel, int64_t lane) {
  for (int64_t k = 0; k < cols; ++k)
    std::memcpy(panel + (k * kPanelWidth + lane) * sizeof(Element),
                static_cast<const Element*>(row) + k, sizeof(Element));
}

// Q8_0 blocks (ElementFormat) into a lane of a panel.
void pack_q8(const std::byte* row, int64_t cols, std::byte* panel, int64_t lane) {
  for (int64_t k = 0; k < cols; k += kQuantisedDepth, row += 34, panel += kQ8BlockBytes) {
    std::memcpy(panel + 2 * lane, row, 2);
    for (int64_t i = 0; i < kQuantisedDepth; ++i)
      panel[2 * kPanelWidth + i * kPanelWidth + lane] = row[2 + i];
  }
}

// -8 d of an fp16 d, which an fp16 holds: -8 is a power of two, and a scale of 8192 or more would
// make the file's own values infinite.
uint16_t minus_eight_times(uint16_t d) {
  const Kernels& kernels = kernels_for(rapt::CpuIsa::kBaseline);
  float value;
  kernels.widen(&d, rapt::DType::kFloat16, 1, &value);
  value *= -8;
  uint16_t bits;
  kernels.narrow(&value, rapt::DType::kFloat16, 1, &bits);
  return bits;
}

// Q4_0 or Q4_1 blocks, whose byte i holds elements i and i + 16, into a lane of a panel: Q4_0's
// d * (q - 8) is d * q + m with m = -8 d.
void pack_q4(const std::byte* row, int64_t cols, bool has_min, std::byte* panel, int64_t lane) {
  const int64_t header = has_min ? 4 : 2;
  for (int64_t k = 0; k < cols; k += kQuantisedDepth, row += header + 16, panel += kQ4BlockBytes) {
    uint16_t d, m;
    std::memcpy(&d, row, 2);
    if (has_min)
      std::memcpy(&m, row + 2, 2);
    else
      m = minus_eight_times(d);
    std::memcpy(panel + 2 * lane, &d, 2);
    std::memcpy(panel + 2 * (kPanelWidth + lane), &m, 2);
    const auto quant = [&](int64_t i) {
      const auto pair = static_cast<uint32_t>(row[header + i % 16]);
      return i < 16 ? pair & 15 : pair >> 4;
    };
    std::byte* words = panel + 4 * kPanelWidth;
    for (int64_t i = 0; i < kQuantisedDepth; i += kQ4Word, words += 4 * kPanelWidth) {
      uint32_t word = 0;
      for (int64_t j = 0; j < kQ4Word; ++j) word |= quant(i + j) << 4 * j;
      std::memcpy(words + 4 * lane, &word, 4);
    }
  }
}

// A row's stride, off multiples of 4 KiB: see Activations.
int64_t row_stride(int64_t cols) {
  return (cols + 15) / 16 * 16 + 16;
}

// Memory that grows and stays.
class Scratch {
 public:
  float* of(int64_t num_floats) {
    if (size_ < num_floats) {
      buffer_ = AlignedBuffer<float>(num_floats);
      size_ = num_floats;
    }
    return buffer_.data();
  }

 private:
  AlignedBuffer<float> buffer_;
  int64_t size_ = 0;
};
thread_local Scratch expanded_panel, input_rows;

}  // namespace

Activations::Activations(int64_t num_rows, int64_t cols)
    : num_rows_(num_rows),
      stride_(row_stride(cols)),
      values_(static_cast<size_t>(num_rows * stride_)) {}

Linear::Linear(std::initializer_list<const Matrix*> parts, ThreadPool& pool, WeightMemory& memory)
    : cols_((*parts.begin())->cols()), format_(panel_format((*parts.begin())->format())) {
  for (const Matrix* part : parts) {
    rows_ += part->rows();
    if (panel_format(part->format()) != format_) format_ = PanelFormat::kFloat32;
  }
  num_panels_ = (rows_ + kPanelWidth - 1) / kPanelWidth;
  panels_ = memory.take(num_panels_ * panel_bytes());
  pool.run(static_cast<int32_t>(num_panels_), [&](int32_t index) {
    std::byte* panel = panels_ + index * panel_bytes();
    if ((index + 1) * kPanelWidth > rows_)  // lanes past the last row: zeros, and never read
      std::memset(panel, 0, static_cast<size_t>(panel_bytes()));
    for (int64_t lane = 0; lane < kPanelWidth; ++lane) {
      const auto [part, row] = find_row(parts, index * kPanelWidth + lane);
      if (part) pack_row(part, row, panel, lane);
    }
  });
}

int64_t Linear::panel_bytes() const {
  return bytes_of(format_, cols_);
}

void Linear::pack_row(const Matrix* part, int64_t part_row, std::byte* panel, int64_t lane) const {
  const std::byte* row = part->data() + part_row * part->row_bytes();
  switch (format_) {
    case PanelFormat::kFloat16:
    case PanelFormat::kBFloat16:
      return pack_lane<uint16_t>(row, cols_, panel, lane);
    case PanelFormat::kQ8:
      return pack_q8(row, cols_, panel, lane);
    case PanelFormat::kQ4:
      return pack_q4(row, cols_, part->format() == ElementFormat::kQ4_1, panel, lane);
    case PanelFormat::kFloat32: {
      std::vector<float> values(static_cast<size_t>(cols_));
      to_float(part->format(), {row, static_cast<size_t>(part->row_bytes())}, values);
      return pack_lane<float>(values.data(), cols_, panel, lane);
    }
  }
}

void Linear::apply(const Kernels& kernels, ThreadPool& pool, const MakeRow& make_row,
                   int64_t num_rows, Activations& out, bool accumulate) const {
  const bool is_q4 = format_ == PanelFormat::kQ4;
  const int64_t stride = row_stride(is_q4 ? prepared_floats(cols_) : cols_);
  const auto make_rows = [&](float* rows, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = rows + r * stride;
      make_row(r, row);
      if (is_q4) kernels.prepare_q4(row, cols_, row);
    }
  };
  // Few rows wait for memory, which is at its best when a thread reads all its panels in one run;
  // and making a row takes no longer than fetching it from the thread that made it. A task is some
  // panels: for one row of a small matrix a panel is too little to hand over.
  constexpr int64_t kGrainFlops = 1 << 16, kFewRows = 4;
  const bool few = num_rows <= kFewRows;
  const int64_t panel_flops = 2 * cols_ * kPanelWidth * std::max<int64_t>(num_rows, 1);
  const int64_t grain = (kGrainFlops + panel_flops - 1) / panel_flops;
  float* shared_rows = nullptr;
  if (!few) {
    shared_rows = input_rows.of(num_rows * stride);
    pool.run_ranges(num_rows, 16,
                    [&](int64_t begin, int64_t end) { make_rows(shared_rows, begin, end); });
  }
  const auto product = kernels.product[static_cast<size_t>(format_)];
  pool.run_ranges(
      num_panels_, grain,
      [&](int64_t begin, int64_t end) {
        const std::byte* panels = panels_ + begin * panel_bytes();
        float* rows = shared_rows;
        if (few) {
          for (int64_t line = 0; line < kPrefetchBytes; line += kCacheLine)
            __builtin_prefetch(panels + line);
          rows = input_rows.of(num_rows * stride);
          make_rows(rows, 0, num_rows);
        }
        const int64_t column = begin * kPanelWidth;
        product({.x = rows,
                 .x_stride = stride,
                 .num_rows = num_rows,
                 .depth = cols_,
                 .panels = panels,
                 .out = out.row(0) + column,
                 .out_stride = out.stride(),
                 .num_columns = std::min(end * kPanelWidth, rows_) - column,
                 .accumulate = accumulate,
                 .scratch = expanded_panel.of(scratch_floats(cols_))});
      },
      few ? 1 : 4);
}

void Linear::copy_row(const Kernels& kernels, int64_t r, float* values) const {
  kernels.expand_lane[static_cast<size_t>(format_)](panels_ + r / kPanelWidth * panel_bytes(),
                                                    cols_, r % kPanelWidth, values);
}

}  // namespace llm
