// The version of the library that is loaded; rapt/version.h has the headers' as numbers.
#pragma once

#include "rapt/export.hpp"
#include "rapt/version.h"

namespace rapt {

// "0.1.0", of the loaded library.
RAPT_API const char* version();

}  // namespace rapt
