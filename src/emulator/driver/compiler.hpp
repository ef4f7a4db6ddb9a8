// The host's C++ compiler as the compiler of device text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "jit/architecture.hpp"

namespace rapt::emulator {

// Of all that images and the emulator share: different for emulators whose images differ.
uint64_t interface_version();

// The program that the environment variable RAPT_CXX names, else the first of c++, g++ and clang++
// in PATH. Throws Error(kMissingLibrary) that names them where there is none.
class HostCompiler {
 public:
  HostCompiler();

  // Different for compilers that might make different images of one text.
  uint64_t identity() const;

  struct Source {
    jit::Architecture architecture;
    std::string text;
    std::vector<std::pair<std::string, std::string>> headers;  // name, text
  };
  struct Result {
    bool ok = false;
    std::string image, log;
  };
  // Throws Error(kIo) where there is no place for files.
  Result compile(const Source& source) const;

 private:
  std::string path_, version_;
};

}  // namespace rapt::emulator
