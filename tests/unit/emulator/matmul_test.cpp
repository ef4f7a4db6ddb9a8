// A kernel of cp.async, ldmatrix and mma against a product in double, and what becomes of its
// faults.
#include "matmul.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/float16.hpp"

namespace rapt::emulator {
namespace {

struct Problem {
  uint32_t rows, columns, depth;
  bool fp16;
};

// Random matrices, the kernel's product of them, and how far it is from the true one.
class MatmulRun {
 public:
  explicit MatmulRun(const Problem& problem) : problem_(problem) {
    a_ = memory_.allocate<uint16_t>(problem.rows * problem.depth, "a");
    b_ = memory_.allocate<uint16_t>(problem.depth * problem.columns, "b");
    c_ = memory_.allocate<float>(problem.rows * problem.columns, "c");
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (const auto matrix : {a_, b_})
      for (uint16_t& x : matrix)
        x = problem.fp16 ? float_to_float16(normal(random)) : float_to_bfloat16(normal(random));
  }

  void run(const Options& options, int fault = 0) {
    run_matmul(memory_, options,
               {a_, b_, c_, problem_.rows, problem_.columns, problem_.depth, problem_.fp16, fault});
  }

  // The largest error in units of what fp32 accumulation may lose.
  double error() const {
    double worst = 0;
    for (uint32_t i = 0; i < problem_.rows; ++i)
      for (uint32_t j = 0; j < problem_.columns; ++j) {
        double sum = 0, magnitude = 0;
        for (uint32_t k = 0; k < problem_.depth; ++k) {
          const double term =
              value(a_[i * problem_.depth + k]) * value(b_[k * problem_.columns + j]);
          sum += term;
          magnitude += std::abs(term);
        }
        const double error = std::abs(c_[i * problem_.columns + j] - sum);
        worst = std::isnan(error) ? INFINITY : std::max(worst, error / (magnitude * 0x1p-24));
      }
    return worst;
  }

 private:
  double value(uint16_t bits) const {
    return problem_.fp16 ? float16_to_float(bits) : bfloat16_to_float(bits);
  }

  Problem problem_;
  Memory memory_;
  std::span<uint16_t> a_, b_;
  std::span<float> c_;
};

// A sum of 72 terms rounds 72 times, each by half a unit of a partial sum.
constexpr double kMaxError = 72;

constexpr Problem kRagged = {40, 48, 72, false};

class MatmulSeeds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, MatmulSeeds, testing::Range(0, 12));

TEST_P(MatmulSeeds, computes_the_product_under_every_schedule) {
  for (const bool fp16 : {false, true}) {
    MatmulRun matmul({kRagged.rows, kRagged.columns, kRagged.depth, fp16});
    matmul.run({.seed = static_cast<uint64_t>(GetParam())});
    EXPECT_LT(matmul.error(), kMaxError);
  }
}

TEST(Matmul, computes_the_same_without_checks_of_order) {
  MatmulRun matmul(kRagged);
  matmul.run({.check_order = false});
  EXPECT_LT(matmul.error(), kMaxError);
}

// Which words the report of each fault has, in the order of device::Fault. Empty: the kernel runs,
// and its result is wrong.
constexpr const char* kReports[kNumFaults] = {
    nullptr,
    "which was never written|nothing orders that after the write by a copy of",
    "nothing orders that after the write by a copy of warp",
    "nothing orders that after the read by warp",
    "nothing orders that after",
    "not inside an allocation",
    "which was never written",
    "deadlock",
    "meets",
    "",
    "",
    "race on byte .* of c: writes it|not inside an allocation",
};

class MatmulFaults : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Faults, MatmulFaults, testing::Range(1, kNumFaults));

TEST_P(MatmulFaults, are_found_under_every_schedule) {
  const std::string expected = kReports[GetParam()];
  for (uint64_t seed = 0; seed < 6; ++seed) {
    MatmulRun matmul(kRagged);
    try {
      matmul.run({.seed = seed}, GetParam());
      EXPECT_EQ(expected, "") << "seed " << seed << " has no failure";
      EXPECT_GT(matmul.error(), 100 * kMaxError) << "seed " << seed;
    } catch (const Failure& failure) {
      EXPECT_NE(expected, "") << failure.what();
      EXPECT_THAT(failure.what(), testing::ContainsRegex(expected)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace rapt::emulator
