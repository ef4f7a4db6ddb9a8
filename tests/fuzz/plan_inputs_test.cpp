// The same door as libFuzzer's, fed with random bytes: a bounded number in every test run.
#include <gtest/gtest.h>

#include "fuzz/plan_inputs.hpp"
#include "support/problem.hpp"

namespace rapt::test {
namespace {

TEST(PlanInputs, random_bytes_are_planned_rightly_or_refused) {
  std::vector<uint8_t> bytes;
  int64_t num_run = 0;
  for (uint64_t n = 0; n < 3000; n++) {
    bytes.resize(static_cast<size_t>(uniform_of(n, 1) * 500));
    for (size_t i = 0; i < bytes.size(); i++)
      bytes[i] = static_cast<uint8_t>(uniform_of(n, 2, i) * 256);
    num_run += plan_bytes(bytes.data(), bytes.size());
  }
  EXPECT_GT(num_run, 300);
  EXPECT_LT(num_run, 2700);
}

}  // namespace
}  // namespace rapt::test
