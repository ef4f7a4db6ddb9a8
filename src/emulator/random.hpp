// The scheduler's random numbers (splitmix64): the same on every machine.
#pragma once

#include <cstdint>

namespace rapt::emulator {

struct Random {
  uint64_t state;

  uint64_t next() {
    uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  bool one_in(uint32_t n) { return next() % n == 0; }
};

}  // namespace rapt::emulator
