// What a validation says when it refuses.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "rapt/error.hpp"

namespace rapt::test {

// The message of the Error(kInvalidArgument) that `call` throws; "accepted" if it throws none.
std::string refusal(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

// The message holds every one of the parts: argument, value, bound.
auto says(auto... parts) {
  return testing::AllOf(testing::HasSubstr(std::string(parts))...);
}

}  // namespace rapt::test
