// Numbers and texts as bytes of a file and back. Little-endian, unpadded; texts after their length.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "jit/hash.hpp"

namespace rapt::jit {

static_assert(std::endian::native == std::endian::little);

class ByteWriter {
 public:
  void u32(uint32_t value) { raw(&value, sizeof(value)); }
  void u64(uint64_t value) { raw(&value, sizeof(value)); }
  void hash(const Hash128& value) { u64(value.low), u64(value.high); }
  void bytes(std::string_view value) { out_ += value; }
  void text(std::string_view value) { u64(value.size()), bytes(value); }

  const std::string& written() const { return out_; }

 private:
  void raw(const void* value, size_t size) { out_.append(static_cast<const char*>(value), size); }
  std::string out_;
};

// What is asked for past the end is zero or empty, and ok() is false from then on.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  Hash128 hash() {
    const uint64_t low = u64();
    return {low, u64()};
  }
  std::string_view bytes(uint64_t size) {
    if (size > left_.size()) {
      ok_ = false, left_ = {};
      return {};
    }
    const std::string_view value = left_.substr(0, size);
    left_.remove_prefix(size);
    return value;
  }
  std::string_view text() { return bytes(u64()); }

  bool ok() const { return ok_; }
  bool ended() const { return ok_ && left_.empty(); }

 private:
  template <typename Number>
  Number number() {
    Number value = 0;
    const std::string_view read = bytes(sizeof(value));
    if (ok_) std::memcpy(&value, read.data(), sizeof(value));
    return value;
  }

  std::string_view left_;
  bool ok_ = true;
};

}  // namespace rapt::jit
