// Which keys a query sees, and what a score is before it is weighed.
#pragma once

#include "abi/attention.hpp"
#include "ptx/copy.cuh"
#include "ptx/math.cuh"
#include "softmax/lanes.cuh"

namespace rapt::device {

struct KeyRange {
  int begin, end;
};

// Keys of the work that a query token sees by position. Both ends grow with the token, also where
// the range is empty.
DEVICE KeyRange visible_keys(const AttentionParams& params, const AttentionWork& work, int token) {
  const AttentionRequest& request = work.of_request;
  const i64 position = static_cast<i64>(token) + request.kv_len - request.query_len;
  const i64 low = work.key_begin, high = max(work.key_begin, min(work.key_end, request.kv_len));
  i64 begin = low, end = high;
  if (params.window_left >= 0) begin = min(max(low, position - params.window_left), high);
  if (params.window_right >= 0) end = max(min(high, position + params.window_right + 1), low);
  return {static_cast<int>(begin), static_cast<int>(end)};
}

// The custom mask's bit of (token, key).
DEVICE bool mask_bit(const AttentionParams& params, const AttentionRequest& request, int token,
                     int key) {
  const i64 bit = request.mask_bit + static_cast<i64>(token) * request.kv_len + key;
  return params.custom_mask[bit >> 3] >> (bit & 7) & 1;
}

// cap * tanh(x / cap), by 1 - 2 / (e^2y + 1): the tanh instruction is right to 2^-11 only. Where
// that cancels, by y - y^3 / 3 + 2 y^5 / 15.
DEVICE float soft_capped(float x, float cap) {
  const float y = fabsf(x) / cap, square = y * y;
  const float series = y * fmaf(square, fmaf(square, 2.0f / 15, -1.0f / 3), 1);
  const float capped = cap * (y < 0.1f ? series : 1 - 2 / (exp2_fast(y * (2 * kLog2E)) + 1));
  return x < 0 ? -capped : capped;
}

}  // namespace rapt::device
