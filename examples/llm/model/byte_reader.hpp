// A cursor over bytes that nobody vouches for.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "llm/model/failure.hpp"

namespace llm {

static_assert(std::endian::native == std::endian::little,
              "the formats read here are little-endian");

// Every read is bounded by the bytes that are left; one that is not throws kIo naming `name` (the
// file), the thing to be read, its size and what is left.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }
  const std::string& name() const { return name_; }

  std::span<const std::byte> take(uint64_t num_bytes, const char* what) {
    check_io(num_bytes <= left(), name_, ": ", what, " at byte ", position_, " has ", num_bytes,
             " bytes, but ", left(), " are left: the file is truncated or not what it says");
    const auto taken = bytes_.subspan(position_, num_bytes);
    position_ += num_bytes;
    return taken;
  }

  template <typename T>
  T scalar(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view text(uint64_t num_bytes, const char* what) {
    const auto bytes = take(num_bytes, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
  size_t position_ = 0;
};

}  // namespace llm
