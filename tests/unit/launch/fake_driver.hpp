// A test's way to the fake driver and to what it has seen.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "fakes/libcuda.hpp"
#include "launch/device.hpp"
#include "support/error_of.hpp"

namespace rapt::cuda {

using test::error_of;

class FakeDriverTest : public testing::Test {
 protected:
  FakeDriverTest() {
    const SharedLibrary library({{FAKE_LIBCUDA}, "", ""});
    fake::Control* (*control_of)() = nullptr;
    library.find(control_of, "rapt_fake_control");
    library.find(primary_context_, "rapt_fake_primary_context");
    control_ = control_of();
    control_->failures.clear();
  }

  // The calls made since the last time this was asked.
  std::vector<std::string> calls() { return std::exchange(control_->calls, {}); }

  // Made to fail once: the message of the Error that `action` must throw.
  template <typename Action>
  std::string error_when_fails(const std::string& call, const Action& action, Result result = 719) {
    control_->failures[call] = result;
    const std::string text =
        error_of(result == kOutOfMemory ? ErrorCode::kOutOfMemory : ErrorCode::kDevice, action);
    control_->failures.clear();
    return text;
  }

  fake::Control* control_ = nullptr;
  ContextHandle (*primary_context_)(int32_t ordinal) = nullptr;
  Driver driver_{FAKE_LIBCUDA};
};

}  // namespace rapt::cuda
