// For tests whose kernels are lambdas. They are in the namespace of device text, and compiled as it
// is.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "emulator/launch.hpp"

namespace rapt::device {

using emulator::Failure;
using emulator::launch;
using emulator::Launch;
using emulator::Memory;
using emulator::Options;

// One warp with 4 KiB of shared memory, unless a test says otherwise.
constexpr Launch kOneWarp = {.grid = {}, .threads = 32, .shared_bytes = 4096};
constexpr Launch kTwoWarps = {.grid = {}, .threads = 64, .shared_bytes = 4096};

// The report of the failure, or "" if the kernel runs.
inline std::string report_of(Memory& memory, const Launch& shape, const Options& options,
                             const std::function<void()>& kernel) {
  try {
    launch(memory, shape, options, kernel);
    return "";
  } catch (const Failure& failure) {
    return failure.what();
  }
}

// The kernel fails under every kind of schedule, with these words in its report.
inline void expect_report(Memory& memory, const Launch& shape, const std::string& words,
                          const std::function<void()>& kernel) {
  for (uint64_t seed = 0; seed < 6; ++seed)
    EXPECT_THAT(report_of(memory, shape, {.seed = seed}, kernel), testing::HasSubstr(words))
        << "seed " << seed;
}

// The kernel runs under every kind of schedule.
inline void expect_success(Memory& memory, const Launch& shape,
                           const std::function<void()>& kernel) {
  for (uint64_t seed = 0; seed < 12; ++seed)
    EXPECT_EQ(report_of(memory, shape, {.seed = seed}, kernel), "") << "seed " << seed;
}

}  // namespace rapt::device
