// Throwing with a message made of parts, and integer arithmetic that cannot wrap unseen.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "rapt/error.hpp"

namespace rapt {

// "page_size is " << 0 << ... as one string.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  ((text << parts), ...);
  return text.str();
}

template <typename... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  throw Error(code, concat(parts...));
}

// check(page_size > 0, "page_size is ", page_size, ", must be at least 1"): the parts are put
// together only on failure.
template <typename... Parts>
void check(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]]
    fail(ErrorCode::kInvalidArgument, parts...);
}

// a * b and a + b, or Error(kInvalidArgument) naming `what` when the result does not fit in int64.
inline int64_t checked_mul(int64_t a, int64_t b, const char* what) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) [[unlikely]]
    fail(ErrorCode::kInvalidArgument, what, ": ", a, " * ", b, " does not fit in 64 bits");
  return product;
}

inline int64_t checked_add(int64_t a, int64_t b, const char* what) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) [[unlikely]]
    fail(ErrorCode::kInvalidArgument, what, ": ", a, " + ", b, " does not fit in 64 bits");
  return sum;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

}  // namespace rapt
