// What commands share for output: JSON on stdout, progress on a terminal's stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "rapt/context.hpp"

namespace rapt_tool {

// Keys keep the order in which they were added.
using Json = nlohmann::ordered_json;

// One object, indented, on stdout. Bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& value);

// Whether all that was written to stdout so far has left the process.
bool flush_output();
// Thrown to end work whose output nobody gets; main() says why.
struct OutputLost : std::exception {};

// Warnings and errors of Rapt, a line each on stderr: what ContextOptions::log is given.
void print_warning(rapt::LogLevel level, std::string_view message);

// "label [=====>     ]  42%" on stderr, at most ten times a second; nothing at all when stderr is
// not a terminal. Coloured unless NO_COLOR is set.
class Progress {
 public:
  Progress(std::string label, int64_t total);
  ~Progress();  // takes the bar away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done);

 private:
  std::string label_;
  int64_t total_;
  bool on_terminal_;
  bool colour_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace rapt_tool
