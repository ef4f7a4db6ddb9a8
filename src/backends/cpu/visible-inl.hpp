// Which keys a row sees, as the kernels need it: ranges by position, bits of the custom mask.
#pragma once

#include "backends/cpu/kernels.hpp"

namespace rapt::cpu {
namespace {

template <typename T>
constexpr T smaller(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
constexpr T larger(T a, T b) {
  return a > b ? a : b;
}
constexpr int clamp(int x, int low, int high) {
  return smaller(larger(x, low), high);
}
constexpr int round_up_to(int n, int unit) {
  return (n + unit - 1) / unit * unit;
}

// Keys [begin, end); nothing if end <= begin.
struct Range {
  int begin, end;
};

// Keys of the work that a query sees by position. Both ends grow with the query, also where the
// range is empty: what several queries see lies between the first one's begin and the last one's
// end.
inline Range visible_range(const Problem& problem, const Request& request, const Work& work,
                           int token) {
  const bool bounded = problem.window_left != -1 && problem.window_right != -1;
  if (bounded && problem.window_left + problem.window_right < 0)
    return {work.key_begin, work.key_begin};  // the band itself is empty
  const int64_t p = int64_t{token} + request.kv_len - request.query_len;
  const int64_t low = work.key_begin,
                high = larger(smaller(work.key_end, request.kv_len), work.key_begin);
  int64_t begin = low, end = high;
  if (problem.window_left != -1) begin = smaller(larger(low, p - problem.window_left), high);
  if (problem.window_right != -1) end = larger(smaller(high, p + problem.window_right + 1), low);
  return {static_cast<int>(begin), static_cast<int>(end)};
}

// Bits [key, key + n) of a query's custom mask, n <= 32, lowest first; no byte beyond them is read.
inline uint32_t mask_bits(const Problem& problem, const Request& request, int token, int key,
                          int n) {
  const int64_t bit = request.mask_bit + int64_t{token} * request.kv_len + key;
  const int64_t first = bit >> 3, last = (bit + n - 1) >> 3;
  uint64_t bits = 0;
  for (int64_t byte = first; byte <= last; byte++)
    bits |= uint64_t{problem.custom_mask[byte]} << (8 * (byte - first));
  bits >>= bit & 7;
  return static_cast<uint32_t>(n == 32 ? bits : bits & ((uint64_t{1} << n) - 1));
}

}  // namespace
}  // namespace rapt::cpu
