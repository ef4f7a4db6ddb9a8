// Messages made of parts, and arithmetic that does not wrap.
#include "core/check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace rapt {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(Check, throws_only_when_it_does_not_hold_and_says_all_parts) {
  check(true, "never");
  try {
    check(false, "page_size is ", 0, ": must be at least ", int64_t{1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "page_size is 0: must be at least 1");
  }
}

TEST(Check, products_and_sums_are_exact_or_refused) {
  EXPECT_EQ(checked_mul(kMax, 1, "x"), kMax);
  EXPECT_EQ(checked_mul(kMax, 0, "x"), 0);
  EXPECT_EQ(checked_mul(int64_t{1} << 31, int64_t{1} << 31, "x"), int64_t{1} << 62);
  EXPECT_EQ(checked_add(kMax - 1, 1, "x"), kMax);
  EXPECT_EQ(checked_add(kMax, kMin, "x"), -1);
  EXPECT_THROW(checked_mul(int64_t{1} << 32, int64_t{1} << 31, "x"), Error);
  EXPECT_THROW(checked_mul(kMin, -1, "x"), Error);
  EXPECT_THROW(checked_add(kMax, 1, "x"), Error);
  EXPECT_THROW(checked_add(kMin, -1, "x"), Error);
  try {
    checked_mul(kMax, 3, "KV cache");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "KV cache: 9223372036854775807 * 3 does not fit in 64 bits");
  }
}

TEST(Check, ceil_div_and_round_up_at_their_steps) {
  EXPECT_EQ(ceil_div(0, 16), 0);
  EXPECT_EQ(ceil_div(1, 16), 1);
  EXPECT_EQ(ceil_div(16, 16), 1);
  EXPECT_EQ(ceil_div(17, 16), 2);
  EXPECT_EQ(round_up(17, 16), 32);
  EXPECT_EQ(round_up(32, 16), 32);
}

}  // namespace
}  // namespace rapt
