// A problem drawn from a seed: every option, shape and layout that a spec can say.
#pragma once

#include "support/problem.hpp"

namespace rapt::test {

// Always the same problem for a seed, of at most a few million multiplications. Every problem's
// spec is valid; that some backend accepts it is not promised.
Problem random_problem(uint64_t seed);
// One that FlashAttention 2 accepts on the GPU, and whose rows its kernels can read.
Problem random_gpu_problem(uint64_t seed, const DeviceInfo& gpu);

}  // namespace rapt::test
