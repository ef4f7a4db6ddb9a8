// The seam between the engine and its arithmetic: plain structs and one table of function pointers
// for each instruction set. Every function gives a row the same bits however many rows come with
// it, which is what makes a request's text independent of its batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rapt/device.hpp"
#include "rapt/dtype.hpp"

namespace llm {

// A weight matrix is cut into panels of 32 output features. Within a panel the 32 weights of one
// input feature are neighbours: the loop over input features then streams through memory, and the
// outputs need no horizontal sums.
constexpr int64_t kPanelWidth = 32;

// How a panel stores its weights. The quantised formats have blocks of 32 input features, whose
// scales come first, one for each output feature; an input feature's 32 weights follow another's.
enum class PanelFormat : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kQ8,  // fp16 d[32]; int8 q[32][32]: value = d * q
  kQ4,  // fp16 d[32]; fp16 m[32]; 4-bit q[4][32][8], 8 input features to a 32-bit word, the first
        // one lowest: value = d * q + m
};
constexpr int kNumPanelFormats = 5;
constexpr int64_t kQuantisedDepth = 32;
constexpr int kQ4Word = 8;  // quants in a word
constexpr int64_t kQ8BlockBytes = 2 * kPanelWidth + kQuantisedDepth * kPanelWidth;
constexpr int64_t kQ4BlockBytes = 4 * kPanelWidth + kQuantisedDepth * kPanelWidth / 2;
constexpr int64_t kExpandedBlockBytes = (2 + kQuantisedDepth) * kPanelWidth * 4;

// Floats that a quantised product of `depth` input features needs of scratch, and those of a row
// that prepare_q4 makes.
constexpr int64_t scratch_floats(int64_t depth) {
  return depth / kQuantisedDepth * kExpandedBlockBytes / 4;
}
constexpr int64_t prepared_floats(int64_t depth) {
  return depth + depth / kQuantisedDepth;
}

// So many bytes ahead of what they multiply, products of few rows ask memory for. Whoever has
// something to do before such a product may ask for the first ones.
constexpr int64_t kPrefetchBytes = 8192;
constexpr int64_t kCacheLine = 64;

// out[r, 0..num_columns) (+)= x[r, :] · panels for rows r of x.
struct PanelProduct {
  const float* x;  // [num_rows, depth]; for kQ4 rows that prepare_q4 made
  int64_t x_stride;
  int64_t num_rows;
  int64_t depth;            // input features
  const std::byte* panels;  // [ceil(num_columns / 32), depth, 32] of the function's format
  float* out;               // the first panel's first column
  int64_t out_stride;
  int64_t num_columns;  // what the last panel has more is padding
  bool accumulate;      // add to out
  float* scratch;       // 64-byte aligned; for quantised formats
};

struct Kernels {
  // By PanelFormat. Quants enter the products as they are: a quantised weight loses nothing.
  void (*product[kNumPanelFormats])(const PanelProduct&);
  // The weights of one output feature, lane of the panel: values[depth].
  void (*expand_lane[kNumPanelFormats])(const std::byte* panel, int64_t depth, int64_t lane,
                                        float* values);
  // A row for kQ4: x, each element over a power of two that its quants come with, and then the sums
  // of x over each block, which the mins are multiplied by. `prepared` may be x.
  void (*prepare_q4)(const float* x, int64_t depth, float* prepared);
  // out = x / sqrt(mean(x^2) + epsilon) * weight, over one row.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int64_t n, float* out);
  // out[i] = silu(gate[i]) * up[i]
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);
  // Turns n pairs of a head by the angles whose cosines and sines are given: neighbours
  // (head[2 i], head[2 i + 1]), or halves (head[i], head[i + n]).
  void (*rotate_neighbours)(float* head, const float* cosines, const float* sines, int64_t n);
  void (*rotate_halves)(float* head, const float* cosines, const float* sines, int64_t n);
  // To and from the 16-bit formats, round to nearest even; dtype is fp16 or bf16.
  void (*narrow)(const float* values, rapt::DType dtype, int64_t n, uint16_t* bits);
  void (*widen)(const uint16_t* bits, rapt::DType dtype, int64_t n, float* values);
};

// The kernels of the highest level that is compiled and not above `isa`.
const Kernels& kernels_for(rapt::CpuIsa isa);

}  // namespace llm
