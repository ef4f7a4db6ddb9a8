// The one exception type of Rapt's C++ interface.
//
// Every message names the argument, its value, the bound it broke and what to do about it.
// Validation comes before the first write: when an Error leaves a call, no output byte has changed.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "rapt/export.hpp"

namespace rapt {

enum class ErrorCode : int32_t {
  kInvalidArgument = 1,  // a value, shape, stride, dtype or length outside its bound
  kUnsupported = 2,      // a valid request that the asked-for backend, or every backend, refuses
  kOutOfMemory = 3,      // an allocation failed, or a page pool has no free page
  kMissingLibrary = 4,   // a run-time library (driver, compiler, communicator) could not be loaded
  kDevice = 5,           // a device or driver reported a failure
  kIo = 6,               // a file could not be read or is malformed
  kInternal = 7,         // a broken invariant of Rapt's own: please report
};

// The code's name in snake case, e.g. "invalid_argument".
RAPT_API const char* to_string(ErrorCode code);

class RAPT_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace rapt
