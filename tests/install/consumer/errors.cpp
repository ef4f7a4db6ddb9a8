// rapt::Error crosses the library's edge as itself, though nearly all symbols are hidden.
#include <cstdio>
#include <stdexcept>

#include "rapt/rapt.hpp"

int main() {
  try {
    rapt::device_info("abacus");
  } catch (const rapt::Error& error) {
    std::printf("%s: %s\n", rapt::to_string(error.code()), error.what());
    return error.code() == rapt::ErrorCode::kInvalidArgument ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("not a rapt::Error: %s\n", error.what());
  }
  return 1;
}
