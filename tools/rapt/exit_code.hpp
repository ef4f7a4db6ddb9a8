// What the shell learns: 0 done, 2 bad arguments or input, 1 anything else.
#pragma once

#include "rapt/error.hpp"

namespace rapt_tool {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kBadInput = 2;

// A backend asked for by name that does not take the problem is a bad argument too.
constexpr int exit_code(rapt::ErrorCode code) {
  switch (code) {
    case rapt::ErrorCode::kInvalidArgument:
    case rapt::ErrorCode::kUnsupported:
    case rapt::ErrorCode::kIo:
      return kBadInput;
    default:
      return kFailed;
  }
}

}  // namespace rapt_tool
