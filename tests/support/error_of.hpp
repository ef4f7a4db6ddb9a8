// What a call that must fail says.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "rapt/error.hpp"

namespace rapt::test {

// The message of the Error with that code that `action` must throw.
template <typename Action>
std::string error_of(ErrorCode code, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace rapt::test
