#include "backends/cpu/merge.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/float16.hpp"

namespace rapt::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A state counts unless it says that it saw no key: -inf, or +inf from a peer.
bool counts(float lse) {
  return !std::isinf(lse);
}

// Reads and writes elements of the three types a state may have.
struct Elements {
  std::byte* data;
  DType dtype;

  float get(int64_t i) const {
    if (dtype == DType::kFloat32) return reinterpret_cast<const float*>(data)[i];
    const uint16_t bits = reinterpret_cast<const uint16_t*>(data)[i];
    return dtype == DType::kBFloat16 ? bfloat16_to_float(bits) : float16_to_float(bits);
  }
  void set(int64_t i, float value) const { store(i, &value, 1); }
  // Elements [begin, begin + count).
  void store(int64_t begin, const float* values, int64_t count) const {
    auto* const bits = reinterpret_cast<uint16_t*>(data) + begin;
    switch (dtype) {
      case DType::kFloat32:
        std::copy_n(values, count, reinterpret_cast<float*>(data) + begin);
        break;
      case DType::kBFloat16:
        std::transform(values, values + count, bits, float_to_bfloat16);
        break;
      default:
        std::transform(values, values + count, bits, float_to_float16);
    }
  }
};

int64_t offset_of(const TensorView& tensor, int64_t i, int64_t j) {
  return (tensor.shape[0] > 1 ? i * tensor.stride[0] : 0) +
         (tensor.shape[1] > 1 ? j * tensor.stride[1] : 0);
}

Elements row_of(const TensorView& tensor, int64_t token, int64_t head) {
  const int64_t offset =
      offset_of(tensor, token, head) * static_cast<int64_t>(size_of(tensor.dtype));
  return {static_cast<std::byte*>(tensor.data) + offset, tensor.dtype};
}

float& lse_of(const TensorView& tensor, int64_t token, int64_t head) {
  return static_cast<float*>(tensor.data)[offset_of(tensor, head, token)];
}

// Where a merged row goes.
struct Target {
  Elements out;
  float* lse;  // null if not wanted
  float sink;  // -inf: none
};

Target target_of(const Problem& problem, const Request& request, int64_t kv_head, int64_t row) {
  const int64_t token = request.query_start + row / problem.group;
  const int64_t head = kv_head * problem.group + row % problem.group;
  float* lse = nullptr;
  if (problem.lse)
    lse =
        reinterpret_cast<float*>(reinterpret_cast<std::byte*>(problem.lse) +
                                 head * problem.lse_head_stride + token * problem.lse_token_stride);
  return {{problem.out + token * problem.out_token_stride + head * problem.out_head_stride,
           problem.dtype},
          lse,
          problem.sinks ? problem.sinks[head] : -kInfinity};
}

// What a sink, as a score of the value 0, adds to a sum relative to `max`. +inf takes all the
// weight, and inf - inf would be NaN.
double sink_weight(float sink, double max) {
  if (sink == -kInfinity) return 0;
  return sink == max ? 1 : std::exp(sink - max);
}

constexpr int64_t kChunk = 512;  // elements merged at a time: most rows in one go

// The parts' outputs times exp(lse - max) / sum, added up as `Sum`s.
template <typename Sum>
void write_mean(const Partials& partials, int64_t row, int64_t part_rows, int32_t num_parts,
                int64_t dim, double max, double sum, const Elements& out) {
  for (int64_t begin = 0; begin < dim; begin += kChunk) {
    const int64_t count = std::min(kChunk, dim - begin);
    Sum merged[kChunk];
    std::fill_n(merged, count, Sum{0});
    for (int32_t s = 0; s < num_parts; s++) {
      const float lse = partials.lse[row + s * part_rows];
      if (!counts(lse)) continue;
      const float weight = static_cast<float>(std::exp(double{lse} - max) / sum);
      const float* part = partials.out + (row + s * part_rows) * partials.out_stride + begin;
      for (int64_t i = 0; i < count; i++) merged[i] += weight * part[i];
    }
    if constexpr (std::is_same_v<Sum, float>) {
      out.store(begin, merged, count);
    } else {
      float rounded[kChunk];
      std::copy_n(merged, count, rounded);
      out.store(begin, rounded, count);
    }
  }
}

// Parts s of a row are at `row` + s * part_rows.
void merge_row(const Partials& partials, int64_t row, int64_t part_rows, int32_t num_parts,
               int64_t dim, const Target& target) {
  // So few parts that a chain of fp32 sums is rounded less than what it adds up.
  constexpr int32_t kMaxFloatParts = 64;
  float max = target.sink;
  for (int32_t s = 0; s < num_parts; s++) max = std::max(max, partials.lse[row + s * part_rows]);
  double sum = sink_weight(target.sink, max);
  for (int32_t s = 0; s < num_parts; s++)
    if (counts(partials.lse[row + s * part_rows]))
      sum += std::exp(double{partials.lse[row + s * part_rows]} - max);
  const auto write = num_parts <= kMaxFloatParts ? write_mean<float> : write_mean<double>;
  write(partials, row, part_rows, num_parts, dim, max, sum, target.out);
  if (target.lse)
    *target.lse =
        max == -kInfinity && sum == 0 ? -kInfinity : static_cast<float>(max + std::log(sum));
}

}  // namespace

void merge_partials(const Problem& problem, const Request* requests, std::span<const Merge> merges,
                    const Partials& partials, int64_t row_begin, int64_t row_end) {
  auto merge = std::upper_bound(merges.begin(), merges.end(), row_begin,
                                [](int64_t row, const Merge& m) { return row < m.first_row; }) -
               1;
  for (int64_t row = row_begin; row < row_end; ++merge) {
    const int64_t rows = merge->row_end - merge->row_begin;
    const int64_t part_rows = rows * (merge->kv_head_end - merge->kv_head_begin);
    for (; row < row_end && row < merge->first_row + part_rows; row++) {
      const int64_t i = row - merge->first_row;
      const Target target = target_of(problem, requests[merge->request],
                                      merge->kv_head_begin + i / rows, merge->row_begin + i % rows);
      merge_row(partials, merge->partial + i, part_rows, merge->num_parts, problem.head_dim_vo,
                target);
    }
  }
}

void write_state(const Problem& problem, const Request& request, int64_t kv_head, int64_t row,
                 const double* values, double max, double sum) {
  const Target target = target_of(problem, request, kv_head, row);
  const double top = std::max(max, double{target.sink});
  const double weight = sum == 0 || max == top ? 1 : std::exp(max - top);
  const double total = sum * weight + sink_weight(target.sink, top);
  const double norm = sum == 0 ? 0 : weight / total;
  for (int64_t begin = 0; begin < problem.head_dim_vo; begin += kChunk) {
    const int64_t count = std::min(kChunk, problem.head_dim_vo - begin);
    float out[kChunk];
    for (int64_t i = 0; i < count; i++) out[i] = static_cast<float>(values[begin + i] * norm);
    target.out.store(begin, out, count);
  }
  if (target.lse) *target.lse = total == 0 ? -kInfinity : static_cast<float>(top + std::log(total));
}

void merge_states(const MergeArgs& args, int64_t row_begin, int64_t row_end) {
  const auto num_states = static_cast<int64_t>(args.outs.size());
  const int64_t heads = args.out.shape[1], dim = args.out.shape[2];
  for (int64_t row = row_begin; row < row_end; row++) {
    const int64_t token = row / heads, head = row % heads;
    float max = -kInfinity;
    int64_t num_counted = 0, last = 0;
    for (int64_t s = 0; s < num_states; s++) {
      const float lse = lse_of(args.lses[s], token, head);
      if (!counts(lse)) continue;
      max = std::max(max, lse);
      num_counted++;
      last = s;
    }
    const Elements out = row_of(args.out, token, head);
    float lse = max;
    if (num_counted == 0) {
      for (int64_t d = 0; d < dim; d++) out.set(d, 0);
    } else if (num_counted == 1) {
      // The others are the identity: not a bit changes.
      lse = lse_of(args.lses[last], token, head);
      const Elements state = row_of(args.outs[last], token, head);
      if (state.dtype == out.dtype)
        std::copy_n(state.data, dim * static_cast<int64_t>(size_of(out.dtype)), out.data);
      else
        for (int64_t d = 0; d < dim; d++) out.set(d, state.get(d));
    } else {
      double sum = 0;
      for (int64_t s = 0; s < num_states; s++) {
        const float one = lse_of(args.lses[s], token, head);
        if (counts(one)) sum += std::exp(double{one} - max);
      }
      // In double, so that weights that sum to one never lift the largest finite value.
      for (int64_t d = 0; d < dim; d++) {
        double value = 0;
        for (int64_t s = 0; s < num_states; s++) {
          const float one = lse_of(args.lses[s], token, head);
          if (counts(one))
            value += std::exp(double{one} - max) / sum * row_of(args.outs[s], token, head).get(d);
        }
        out.set(d, static_cast<float>(value));
      }
      lse = static_cast<float>(max + std::log(sum));
    }
    if (args.lse.has_value()) lse_of(args.lse, token, head) = lse;
  }
}

}  // namespace rapt::cpu
