#include "rapt/version.hpp"

#define RAPT_STRINGIZE_(x) #x
#define RAPT_STRINGIZE(x) RAPT_STRINGIZE_(x)

namespace rapt {

const char* version() {
  return RAPT_STRINGIZE(RAPT_VERSION_MAJOR) "." RAPT_STRINGIZE(
      RAPT_VERSION_MINOR) "." RAPT_STRINGIZE(RAPT_VERSION_PATCH);
}

}  // namespace rapt
