// The headers that device text meets on the emulator, as they were when the library was built.
#pragma once

#include <span>
#include <string_view>

namespace rapt::emulator {

// By its path below src/.
struct HeaderText {
  std::string_view name, text;
};

std::span<const HeaderText> embedded_headers();

}  // namespace rapt::emulator
