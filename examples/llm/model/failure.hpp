// Throwing rapt::Error from the example: it stands on Rapt's public headers alone.
#pragma once

#include <sstream>
#include <string>

#include "rapt/error.hpp"

namespace llm {

// Throws an Error whose message is the parts, one after the other.
template <typename... Parts>
[[noreturn]] void fail(rapt::ErrorCode code, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw rapt::Error(code, text.str());
}

// A file that can't be read, or whose bytes contradict themselves or end too soon.
template <typename... Parts>
[[noreturn]] void fail_io(const Parts&... parts) {
  fail(rapt::ErrorCode::kIo, parts...);
}

// The parts are put together only on failure.
template <typename... Parts>
void check_io(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]]
    fail_io(parts...);
}

// A sound file that asks for something this example does not do.
template <typename... Parts>
void check_supported(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]]
    fail(rapt::ErrorCode::kInvalidArgument, parts...);
}

}  // namespace llm
