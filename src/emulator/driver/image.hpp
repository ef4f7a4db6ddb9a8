// What stands for a cubin: a shared library for this machine, with what the driver must know before
// it is loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/driver/entry.hpp"
#include "jit/architecture.hpp"

namespace rapt::emulator {

// The image of a shared library's bytes.
std::string make_image(const jit::Architecture& architecture, std::string_view library);

// A loaded one.
class Image {
 public:
  // Reads as many bytes as the image says it has. Throws a Refusal for what is no image, one of
  // another emulator, or for another architecture.
  Image(const void* image, int32_t compute_capability);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  int32_t architecture() const { return architecture_; }  // 10 * major + minor
  // What of the library is in memory: code, constants, variables.
  const std::vector<std::span<const char>>& segments() const { return segments_; }
  // Null where it has no kernel of that name.
  const Entry* find(const std::string& kernel) const;

 private:
  // Open as long as the library is: the loader takes libraries of one path for the same, and the
  // path has the number.
  int file_ = -1;
  void* library_ = nullptr;
  int32_t architecture_ = 0;
  std::vector<std::span<const char>> segments_;
};

}  // namespace rapt::emulator
