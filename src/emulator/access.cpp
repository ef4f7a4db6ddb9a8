#include "emulator/access.hpp"

#include <string_view>

#include "core/check.hpp"

namespace rapt::emulator {

std::string Origin::describe() const {
  const char* how = ordinary ? "C++ code after " : "";
  if (at.line == 0) return concat(how, instruction);
  std::string_view file = at.file;
  file.remove_prefix(file.rfind('/') + 1);
  return concat(how, instruction, " at ", file, ":", at.line);
}

}  // namespace rapt::emulator
