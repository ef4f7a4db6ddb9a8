// UTF-8, one character at a time, out of bytes that need not be UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace llm {

enum class Utf8State : uint8_t {
  kWhole,    // a character
  kPartial,  // the bytes end within what may become one
  kInvalid,  // can't become one (overlong forms, surrogates and values past U+10FFFF neither)
};

struct Utf8Step {
  Utf8State state;
  size_t length;       // bytes it covers, >= 1
  uint32_t codepoint;  // if whole
};

// The first step of `text`, which is not empty.
inline Utf8Step next_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8State::kWhole, 1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {Utf8State::kInvalid, 1, 0};
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte's range is narrower after four leads: no overlong forms, no surrogates, nothing
  // past U+10FFFF.
  const uint8_t lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint8_t highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  uint32_t codepoint = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8State::kPartial, i, 0};
    const bool second = i == 1;
    if (byte(i) < (second ? lowest : 0x80) || byte(i) > (second ? highest : 0xbf))
      return {Utf8State::kInvalid, i, 0};
    codepoint = codepoint << 6 | (byte(i) & 0x3fu);
  }
  return {Utf8State::kWhole, length, codepoint};
}

inline void append_utf8(uint32_t codepoint, std::string& text) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80u | ((codepoint >> shift) & 0x3fu));
  };
  if (codepoint < 0x80) {
    text += static_cast<char>(codepoint);
  } else if (codepoint < 0x800) {
    text += static_cast<char>(0xc0u | codepoint >> 6);
    tail(0);
  } else if (codepoint < 0x10000) {
    text += static_cast<char>(0xe0u | codepoint >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0u | codepoint >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace llm
