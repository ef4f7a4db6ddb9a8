// Where in the device text something happened, and accesses to memory as they are remembered.
#pragma once

#include <cstdint>
#include <string>

namespace rapt::emulator {

// A line of device text: std::source_location for compilers that lack it.
struct Location {
  const char* file = "";
  uint32_t line = 0;

  // As a default argument: the line of the call that leaves the argument out.
  static constexpr Location current(const char* file = __builtin_FILE(),
                                    uint32_t line = __builtin_LINE()) {
    return {file, line};
  }
  bool operator==(const Location& other) const = default;
};

// An emulated instruction and its line. Ordinary loads and stores of C++ are known by the emulated
// instruction before them.
struct Origin {
  const char* instruction = "its first instruction";
  Location at;
  bool ordinary = false;

  std::string describe() const;
  bool operator==(const Origin& other) const = default;
};

struct Access {
  uint32_t time = 0;   // of the agent
  uint32_t agent = 0;  // of the block (clock.hpp)
  bool write = false;
  bool asynchronous = false;  // of the asynchronous proxy: TMA and wgmma, not cp.async
  Origin origin;
};

}  // namespace rapt::emulator
