// EXPECT_TRUE(refused(rapt_run(...), RAPT_INVALID_ARGUMENT, "q has ndim 0"))
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "rapt/rapt.h"

namespace rapt::test {

inline testing::AssertionResult succeeded(rapt_status status) {
  if (status == RAPT_OK) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << rapt_status_name(status) << ": " << rapt_last_error_message();
}

// That status, and a message that contains `words`.
inline testing::AssertionResult refused(rapt_status status, rapt_status expected,
                                        const std::string& words) {
  const std::string message = rapt_last_error_message();
  if (status == expected && message.find(words) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << rapt_status_name(status) << ": \"" << message << "\", expected "
         << rapt_status_name(expected) << " with \"" << words << "\"";
}

}  // namespace rapt::test
