#include "console.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

namespace rapt_tool {
namespace {

constexpr int kBarCells = 30;
constexpr std::chrono::milliseconds kRedraw{100};
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kPlain = "\x1b[0m";
constexpr const char* kClearLine = "\r\x1b[K";

// The convention of no-color.org: set and not empty.
bool wants_colour() {
  const char* no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == 0;
}

bool stderr_is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace

void print_json(const Json& value) {
  std::cout << value.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

bool flush_output() {
  std::cout.flush();
  return std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
}

void print_warning(rapt::LogLevel level, std::string_view message) {
  if (level >= rapt::LogLevel::kWarning) std::cerr << "rapt: " << message << '\n';
}

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(std::max<int64_t>(total, 1)),
      on_terminal_(stderr_is_terminal()),
      colour_(wants_colour()),
      next_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (drawn_) std::fputs(kClearLine, stderr);
}

void Progress::update(int64_t done) {
  if (!on_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kRedraw;
  drawn_ = true;
  const double share =
      std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
  const int cells = static_cast<int>(share * kBarCells);
  std::string bar(static_cast<size_t>(cells), '=');
  if (cells < kBarCells) bar += '>';
  bar.resize(kBarCells, ' ');
  std::fprintf(stderr, "\r%s [%s%s%s] %3d%%", label_.c_str(), colour_ ? kGreen : "", bar.c_str(),
               colour_ ? kPlain : "", static_cast<int>(share * 100));
  std::fflush(stderr);
}

}  // namespace rapt_tool
