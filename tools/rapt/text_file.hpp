// Files of text that options name, read whole.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "rapt/error.hpp"

namespace rapt_tool {

// Throws rapt::Error(kIo) that names the option and the file where it cannot be read.
inline std::string read_text_file(const std::string& option, const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || !text)
    throw rapt::Error(rapt::ErrorCode::kIo, option + " is \"" + path + "\": cannot be read");
  return text.str();
}

}  // namespace rapt_tool
