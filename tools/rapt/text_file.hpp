// Files of text that options name, read whole.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "rapt/error.hpp"

namespace rapt_tool {

// What the shell hands on, be it a pipe or a terminal: "/dev/stdin", or "/dev/fd/63" for "<(...)".
inline bool is_open_already(const std::filesystem::path& path) {
  return path == "/dev/stdin" || path.parent_path() == "/dev/fd" ||
         path.parent_path() == "/proc/self/fd";
}

// Throws rapt::Error(kIo) that names the option and the file where it cannot be read, or might
// never end: a FIFO waits for who writes to it, a device goes on and on.
inline std::string read_text_file(const std::string& option, const std::string& path) {
  const auto refuse = [&](const char* why) {
    throw rapt::Error(rapt::ErrorCode::kIo, option + " is \"" + path + "\": " + why);
  };
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error) &&
      !is_open_already(path))
    refuse("is not a regular file");
  std::ifstream file(path);
  std::ostringstream text;
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || !text) refuse("cannot be read");
  return text.str();
}

}  // namespace rapt_tool
