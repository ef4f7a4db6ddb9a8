// Attention in fp64 from the contract's text alone, and the bound a backend's result must keep.
//
// The contract's |out - ref64| <= 2 * |lowprec - ref64| + one rounding is applied to a whole
// problem: |lowprec - ref64| is its maximum over all elements (element by element, a lucky lowprec
// would refuse good results), and "one rounding" is the dtype's roundoff at the largest visible
// |v|, the magnitude that P * V sums have. lowprec is softmax(Q K) V with fp32 sums and P rounded
// to the dtype. To both bounds a few fp32 roundings of the scores are added, for in fp32, and for
// the lse, lowprec may be lucky in a whole (small) problem; the lse of a 16-bit dtype may be off by
// another 1/1024 of its roundoff, for an exp whose results are rounded to it, and on a processor
// with AMX that of bf16 by another 1e-4. NaN, infinities and rows without keys must agree exactly.
#pragma once

#include <string>
#include <vector>

#include "support/problem.hpp"
#include "support/tensors.hpp"

namespace rapt::test {

struct Expected {
  std::vector<double> out;   // [T, Hq, Dvo]
  std::vector<double> lse;   // [Hq, T]
  double lowprec_error = 0;  // the largest |lowprec - ref64| of out
  double out_bound = 0;
  double lse_bound = 0;
};
Expected expect(const Problem& problem, const Values& values);
Expected expect(const Problem& problem);

struct Comparison {
  std::string mismatch;    // the first element out of bound: where, got, want; empty if none is
  double worst_ratio = 0;  // the largest error of out over its bound
  double worst_lse_ratio = 0;
};
Comparison compare(const Problem& problem, const Expected& expected, const Outcome& outcome);

// Empty, or why the outcome is wrong: a fault of memory, or the first mismatch. `worst`, if given,
// is raised to the larger of both ratios.
std::string verdict(const Problem& problem, const Expected& expected, const Outcome& outcome,
                    double* worst = nullptr);
// Runs the problem on every backend of backends_for(); the first wrong outcome, or empty. `worst`
// as above, over all of them.
std::string verdict_of_all(const Problem& problem, double* worst = nullptr);

}  // namespace rapt::test
