// Products of rows and panels. For kernels_isa.cpp alone.
//
// Their shape: rows x 32 accumulators stay in registers while the panel streams by, so a weight is
// loaded once per block of rows: once at all when decoding, where memory is the bound (32 weights
// and 2 x rows x 32 flops a step), and from the second-level cache when prefilling, where the
// multiply-add units are. A panel is one stream, which the processor prefetches; several panels
// side by side, 12 KB apart, read at half the speed.
//
// A row has the same bits whatever the number of rows: each accumulator adds its products in the
// order of the input features; in quantised formats those of a block, whose sum is then scaled and
// added to the row's, so that a weight costs a conversion and a multiply-add.
#pragma once

#include "llm/engine/vectors-inl.hpp"

namespace llm::LLM_ISA {
namespace {

// Panel formats: expand() gives kStep input features at a time, as fp32, of the block that enter()
// was told. A block is kDepth input features.
struct Float32 {
  static constexpr int kDepth = 1, kStep = 1;
  static constexpr int64_t kBytes = 4 * kPanelWidth;
  void enter(const std::byte* at) { block = at; }
  [[gnu::always_inline]] void expand(int, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) weights[0][v] = load<Vec>(block + v * kLanes * 4);
  }
  const std::byte* block;
};

template <Vec (*kWiden)(const std::byte*)>
struct Sixteen {
  static constexpr int kDepth = 1, kStep = 1;
  static constexpr int64_t kBytes = 2 * kPanelWidth;
  void enter(const std::byte* at) { block = at; }
  [[gnu::always_inline]] void expand(int, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) weights[0][v] = kWiden(block + v * kLanes * 2);
  }
  const std::byte* block;
};
using Float16 = Sixteen<widen_float16>;
using BFloat16 = Sixteen<widen_bfloat16>;

// Quantised formats: scale(v) and, if kHasMin, min(v) are those of vector v's output features. What
// expand() gives of input feature k is its quant over input_scale(k).
struct Q8 {
  static constexpr int kDepth = kQuantisedDepth, kStep = 1;
  static constexpr int64_t kBytes = kQ8BlockBytes;
  static constexpr bool kHasMin = false;
  static constexpr float input_scale(int) { return 1; }
  void enter(const std::byte* at) { block = at; }
  [[gnu::always_inline]] Vec scale(int v) const { return widen_float16(block + v * kLanes * 2); }
  [[gnu::always_inline]] void expand(int k, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) {
      const Ints q = widen_int8(block + (2 + k) * kPanelWidth + v * kLanes);
      weights[0][v] = __builtin_convertvector(q, Vec);
    }
  }
  const std::byte* block;
};

// A quant is converted where it stands in its word, times 16 to the power of its place, which the
// input makes good for (prepare_q4): the last one, which would be the sign, is shifted down.
struct Q4 {
  static constexpr int kDepth = kQuantisedDepth, kStep = kQ4Word;
  static constexpr int64_t kBytes = kQ4BlockBytes;
  static constexpr bool kHasMin = true;
  static constexpr float input_scale(int k) {
    const int place = k % kQ4Word;
    return place + 1 == kQ4Word ? 1 : 1.0f / static_cast<float>(1 << 4 * place);
  }
  void enter(const std::byte* at) { block = at; }
  [[gnu::always_inline]] Vec scale(int v) const { return widen_float16(block + v * kLanes * 2); }
  [[gnu::always_inline]] Vec min(int v) const {
    return widen_float16(block + (kPanelWidth + v * kLanes) * 2);
  }
  [[gnu::always_inline]] void expand(int k, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) {
      const auto words = load<Bits>(block + (4 + k / 2) * kPanelWidth + v * kLanes * 4);
      for (int i = 0; i < kStep; ++i) {
        const Bits q = i + 1 == kStep ? words >> 4 * i : words & 15u << 4 * i;
        weights[i][v] = __builtin_convertvector(reinterpret_cast<Ints>(q), Vec);
      }
    }
  }
  const std::byte* block;
};

// A quantised panel as expand_panel() leaves it for many rows: for each block its scales and mins,
// then what expand() gave of each input feature, all fp32.
template <bool kWithMin>
struct Expanded {
  static constexpr int kDepth = kQuantisedDepth, kStep = 1;
  static constexpr int64_t kBytes = kExpandedBlockBytes;
  static constexpr bool kHasMin = kWithMin;
  void enter(const std::byte* at) { block = at; }
  [[gnu::always_inline]] Vec vector_of(int64_t row, int v) const {
    return load<Vec>(block + (row * kPanelWidth + v * kLanes) * 4);
  }
  [[gnu::always_inline]] Vec scale(int v) const { return vector_of(0, v); }
  [[gnu::always_inline]] Vec min(int v) const { return vector_of(1, v); }
  [[gnu::always_inline]] void expand(int k, Vec (&weights)[kStep][kVectors]) const {
    for (int v = 0; v < kVectors; ++v) weights[0][v] = vector_of(2 + k, v);
  }
  const std::byte* block;
};

template <typename Format>
constexpr bool kIsQuantised = Format::kDepth > 1;

// Adds the products of kBlocks neighbouring blocks to each row's sums. `x` is at the first one's
// input features, `x_sums` at its sum.
template <typename Format, int kRows, int kBlocks>
[[gnu::always_inline]] inline void add_blocks(const std::byte* at, const float* x,
                                              const float* x_sums, int64_t x_stride,
                                              Vec (&sums)[kRows][kVectors]) {
  Format blocks[kBlocks];
  Vec products[kBlocks][kRows][kVectors] = {};
  for (int b = 0; b < kBlocks; ++b) blocks[b].enter(at + b * Format::kBytes);
  for (int k = 0; k < Format::kDepth; k += Format::kStep) {
    for (int b = 0; b < kBlocks; ++b) {
      Vec weights[Format::kStep][kVectors];
      blocks[b].expand(k, weights);
      for (int step = 0; step < Format::kStep; ++step) {
        for (int r = 0; r < kRows; ++r) {
          const Vec value = splat(x[r * x_stride + b * Format::kDepth + k + step]);
          Vec(&to)[kVectors] = kIsQuantised<Format> ? products[b][r] : sums[r];
          for (int v = 0; v < kVectors; ++v) to[v] += value * weights[step][v];
        }
      }
    }
  }
  if constexpr (kIsQuantised<Format>) {
    for (int b = 0; b < kBlocks; ++b) {
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] += products[b][r][v] * blocks[b].scale(v);
          if constexpr (Format::kHasMin)
            sums[r][v] += splat(x_sums[r * x_stride + b]) * blocks[b].min(v);
        }
      }
    }
  }
}

template <typename Format, int kRows>
[[gnu::noinline]] void product_rows_of_panel(const PanelProduct& p, const std::byte* panel,
                                             int64_t first_row, int64_t first_column) {
  // A sum waits for its last multiply-add: with few of them, two blocks take turns. The lines are
  // then no longer read in their order, and the processor doesn't see what comes.
  constexpr int kBlocks = kIsQuantised<Format> && kRows * kVectors <= 4 ? 2 : 1;
  constexpr int64_t kBytes = kBlocks * Format::kBytes;
  const float* x = p.x + first_row * p.x_stride;
  const float* x_sums = x + p.depth;
  const int64_t num_blocks = p.depth / Format::kDepth;
  Vec sums[kRows][kVectors] = {};
  int64_t i = 0;
  for (; i + kBlocks <= num_blocks; i += kBlocks) {
    const std::byte* at = panel + i * Format::kBytes;
    if constexpr (kBlocks > 1)
      for (int64_t line = 0; line < kBytes; line += kCacheLine)
        __builtin_prefetch(at + kPrefetchBytes + line);
    add_blocks<Format, kRows, kBlocks>(at, x + i * Format::kDepth, x_sums + i, p.x_stride, sums);
  }
  for (; i < num_blocks; ++i)
    add_blocks<Format, kRows, 1>(panel + i * Format::kBytes, x + i * Format::kDepth, x_sums + i,
                                 p.x_stride, sums);
  const int64_t left = p.num_columns - first_column;
  const int64_t num_columns = left < kPanelWidth ? left : kPanelWidth;
  for (int r = 0; r < kRows; ++r) {
    float* out = p.out + (first_row + r) * p.out_stride + first_column;
    alignas(64) float row[kPanelWidth];
    for (int v = 0; v < kVectors; ++v) store(row + v * kLanes, sums[r][v]);
    if (p.accumulate) {
      for (int64_t c = 0; c < num_columns; ++c) out[c] += row[c];
    } else {
      for (int64_t c = 0; c < num_columns; ++c) out[c] = row[c];
    }
  }
}

// Rows from first_row on, as many at a time as the registers hold.
template <typename Format, int kRows>
void product_of_panel(const PanelProduct& p, const std::byte* panel, int64_t first_row,
                      int64_t first_column) {
  for (; first_row + kRows <= p.num_rows; first_row += kRows)
    product_rows_of_panel<Format, kRows>(p, panel, first_row, first_column);
  if constexpr (kRows > 1) product_of_panel<Format, kRows - 1>(p, panel, first_row, first_column);
}

template <typename Format>
void expand_panel(const std::byte* panel, int64_t depth, float* expanded) {
  for (int64_t block = 0; block < depth; block += Format::kDepth, panel += Format::kBytes) {
    Format format;
    format.enter(panel);
    for (int v = 0; v < kVectors; ++v) {
      store(expanded + v * kLanes, format.scale(v));
      if constexpr (Format::kHasMin) store(expanded + kPanelWidth + v * kLanes, format.min(v));
    }
    expanded += 2 * kPanelWidth;
    for (int k = 0; k < Format::kDepth;
         k += Format::kStep, expanded += Format::kStep * kPanelWidth) {
      Vec weights[Format::kStep][kVectors];
      format.expand(k, weights);
      for (int step = 0; step < Format::kStep; ++step)
        for (int v = 0; v < kVectors; ++v)
          store(expanded + step * kPanelWidth + v * kLanes, weights[step][v]);
    }
  }
}

template <typename Format>
void product(const PanelProduct& p) {
  // Few rows take the weights as they come; for more they are expanded once.
  constexpr int kFewRows = kMaxRows < 4 ? kMaxRows : 4;
  const int64_t panel_bytes = p.depth / Format::kDepth * Format::kBytes;
  const std::byte* panel = p.panels;
  for (int64_t column = 0; column < p.num_columns; column += kPanelWidth, panel += panel_bytes) {
    if constexpr (!kIsQuantised<Format>) {
      product_of_panel<Format, kMaxRows>(p, panel, 0, column);
    } else if (p.num_rows <= kFewRows) {
      product_of_panel<Format, kFewRows>(p, panel, 0, column);
    } else {
      expand_panel<Format>(panel, p.depth, p.scratch);
      product_of_panel<Expanded<Format::kHasMin>, kMaxRows>(
          p, reinterpret_cast<const std::byte*>(p.scratch), 0, column);
    }
  }
}

template <typename Format>
void expand_lane(const std::byte* panel, int64_t depth, int64_t lane, float* values) {
  for (int64_t block = 0; block < depth; block += Format::kDepth, panel += Format::kBytes) {
    Format format;
    format.enter(panel);
    for (int k = 0; k < Format::kDepth; k += Format::kStep) {
      Vec weights[Format::kStep][kVectors];
      format.expand(k, weights);
      for (int step = 0; step < Format::kStep; ++step) {
        float row[kPanelWidth];
        for (int v = 0; v < kVectors; ++v) {
          Vec value = weights[step][v];
          if constexpr (kIsQuantised<Format>) {
            value *= format.scale(v) * Format::input_scale(k + step);
            if constexpr (Format::kHasMin) value += format.min(v);
          }
          store(row + v * kLanes, value);
        }
        values[block + k + step] = row[lane];
      }
    }
  }
}

}  // namespace
}  // namespace llm::LLM_ISA
