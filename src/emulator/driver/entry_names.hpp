// The kernels of a text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rapt::emulator {

// NAME of each `extern "C" GLOBAL void NAME(` in it, with or without LAUNCH_BOUNDS(...) between
// and whatever the blanks; comments don't count.
std::vector<std::string> entry_names(std::string_view text);

}  // namespace rapt::emulator
