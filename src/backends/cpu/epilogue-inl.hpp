// From a row's running state to its result.
#pragma once

#include "backends/cpu/softmax-inl.hpp"

namespace rapt::cpu {
namespace {

// A row's state at its end, in log2 units, the sink included where the work is not a part.
struct RowEnd {
  float max, sum;
  float weight;       // of what has been summed, against the sink
  const float* sink;  // in natural units, where it is the maximum; else null
  float lse() const {
    if (sum == 0) return kMinusInfinity;
    const float log_sum = __builtin_log2f(sum);
    return sink ? *sink + log_sum * kLn2 : (max + log_sum) * kLn2;
  }
};

inline RowEnd end_row(const Problem& problem, const Work& work, int query_head, RowState state,
                      float factor) {
  const float max = state.max * factor, sum = state.sum;
  if (!problem.sinks || work.partial >= 0) return {max, sum, 1, nullptr};
  const float& natural = problem.sinks[query_head];
  if (natural == kMinusInfinity) return {max, sum, 1, nullptr};
  // In log2 units the largest finite sinks are none: those are one that is larger, or smaller, than
  // any score, and count as themselves in lse.
  const float sink =
      natural > kLargest ? natural : smaller(larger(natural * kLog2E, -kLargest), kLargest);
  const float top = larger(max, sink);
  const float weight = __builtin_exp2f(max - top);
  // +inf takes all the weight, and inf - inf would be NaN.
  return {top, sum * weight + (sink == top ? 1 : __builtin_exp2f(sink - top)), weight,
          sink == top ? &natural : nullptr};
}

inline float value_scale(const Problem& problem, int head) {
  return problem.v_scale ? problem.v_scale[problem.scales_per_head ? head : 0] : 1.0f;
}
inline void write_lse(const Problem& problem, int query_head, int64_t token, const RowEnd& end) {
  *reinterpret_cast<float*>(reinterpret_cast<std::byte*>(problem.lse) +
                            query_head * problem.lse_head_stride +
                            token * problem.lse_token_stride) = end.lse();
}

// Normalises a row, adds the sink, and writes it where the work says: the output times `gain`.
template <typename T>
inline void write_row(const Problem& problem, const Request& request, const Work& work,
                      const Partials& partials, int head, int row, const float* o, RowState state,
                      float factor, float gain = 1) {
  const int query_head = head * problem.group + row % problem.group;
  const RowEnd end = end_row(problem, work, query_head, state, factor);
  const float norm = (end.sum == 0 ? 0 : end.weight / end.sum * gain) * value_scale(problem, head);
  const int dims = problem.head_dim_vo;
  if (work.partial >= 0) {
    const int64_t index = work.partial +
                          int64_t{head - work.kv_head_begin} * (work.row_end - work.row_begin) +
                          row - work.row_begin;
    float* const out = partials.out + index * partials.out_stride;
    for (int dim = 0; dim < dims; dim += kWidth)
      store(out + dim, load(o + dim) * set1(norm), first_lanes(dims - dim));
    partials.lse[index] = end.lse();
    return;
  }
  const int64_t token = request.query_start + row / problem.group;
  T* const out = reinterpret_cast<T*>(problem.out + token * problem.out_token_stride +
                                      query_head * problem.out_head_stride);
  // + 0: a hidden key's probability 0 may have turned a -0 into 0.
  const int whole = dims / kWidth * kWidth;
  for (int dim = 0; dim < whole; dim += kWidth)
    store(out + dim, load(o + dim) * set1(norm) + zero());
  if (whole < dims)
    store(out + whole, load(o + whole) * set1(norm) + zero(), first_lanes(dims - whole));
  if (problem.lse) write_lse(problem, query_head, token, end);
}

}  // namespace
}  // namespace rapt::cpu
