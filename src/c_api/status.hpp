// The edge between exceptions and statuses: every C function's body runs inside guarded().
#pragma once

#include <utility>

#include "core/check.hpp"
#include "rapt/rapt.h"

namespace rapt::c_api {

// Called in a catch block: keeps the exception's message for this thread and gives its status.
rapt_status status_of_current_exception() noexcept;

template <typename Body>
rapt_status guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return RAPT_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

// require(tokens, "tokens"): a pointer that must not be null.
template <typename T>
T* require(T* pointer, const char* name) {
  check(pointer != nullptr, name, " is null");
  return pointer;
}

}  // namespace rapt::c_api
