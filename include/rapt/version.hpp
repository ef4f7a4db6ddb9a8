// The version of the headers, and of the library that is loaded. CMake reads the numbers from here.
#pragma once

#include "rapt/export.hpp"

#define RAPT_VERSION_MAJOR 0
#define RAPT_VERSION_MINOR 1
#define RAPT_VERSION_PATCH 0

namespace rapt {

// "0.1.0", of the loaded library.
RAPT_API const char* version();

}  // namespace rapt
