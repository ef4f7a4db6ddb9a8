// Structs that carry their own size, in and out: see "Structs" at the top of rapt.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "c_api/status.hpp"

namespace rapt::c_api {

// Beyond this a struct_size is garbage, not a struct of a later version.
constexpr size_t kMaxStructBytes = 4096;

template <typename Params>
size_t checked_struct_size(const Params* params, const char* name) {
  const size_t size = require(params, name)->struct_size;
  check(size >= sizeof(size_t) && size <= kMaxStructBytes && size % alignof(Params) == 0, name,
        "->struct_size is ", size, ": set it to sizeof the struct, ", sizeof(Params),
        " in this version");
  return size;
}

// The caller's struct at the library's size: a shorter one is extended with zeros, the bytes beyond
// must be zero.
template <typename Params>
Params read_params(const Params* given, const char* name) {
  const size_t size = checked_struct_size(given, name);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Params); i < size; i++)
    check(bytes[i] == 0, name, "->struct_size is ", size, ": this version knows ", sizeof(Params),
          " bytes, and byte ", i, " after them is not zero: it asks for something newer");
  Params params{};
  std::memcpy(&params, given, std::min(size, sizeof(Params)));
  params.struct_size = sizeof(Params);
  return params;
}

// As above, or all defaults where the caller may leave the struct out.
template <typename Params>
Params read_optional_params(const Params* given, const char* name) {
  return given ? read_params(given, name) : Params{};
}

// Fills as much of the caller's struct as both sides know, and zeros what only the caller knows.
// `size` is checked_struct_size() of it, taken before the work.
template <typename Params>
void write_params(Params* out, size_t size, Params value) {
  value.struct_size = size;
  std::memcpy(out, &value, std::min(size, sizeof(Params)));
  if (size > sizeof(Params))
    std::memset(reinterpret_cast<unsigned char*>(out) + sizeof(Params), 0, size - sizeof(Params));
}

// The enumerator of a C number; `last` is the largest one.
template <typename Enum>
Enum to_enum(int32_t value, Enum last, const char* name) {
  check(value >= 0 && value <= static_cast<int32_t>(last), name, " is ", value, ": must be in [0, ",
        static_cast<int32_t>(last), "]");
  return static_cast<Enum>(value);
}

inline bool to_flag(int32_t value, const char* name) {
  check(value == 0 || value == 1, name, " is ", value, ": must be 0 or 1");
  return value == 1;
}

// snprintf's way of giving a text to a caller's buffer.
inline void copy_text(std::string_view text, char* buffer, size_t buffer_bytes, size_t* length) {
  check(buffer != nullptr || buffer_bytes == 0, "text is null, but text_bytes is ", buffer_bytes);
  if (buffer_bytes > 0) {
    const size_t copied = std::min(text.size(), buffer_bytes - 1);
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = '\0';
  }
  if (length) *length = text.size();
}

}  // namespace rapt::c_api
