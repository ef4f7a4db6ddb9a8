// Where in the device text something happened, and accesses to memory as they are remembered.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

namespace rapt::emulator {

using Location = std::source_location;

// An emulated instruction and its line. Ordinary loads and stores of C++ are known by the emulated
// instruction before them.
struct Origin {
  const char* instruction = "its first instruction";
  Location at;
  bool ordinary = false;

  std::string describe() const;
};

struct Access {
  uint32_t time = 0;   // of the agent
  uint32_t agent = 0;  // of the block (clock.hpp)
  bool write = false;
  Origin origin;
};

}  // namespace rapt::emulator
