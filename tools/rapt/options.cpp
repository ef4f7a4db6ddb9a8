#include "options.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

namespace rapt_tool {
namespace {

using rapt::Error;
using rapt::ErrorCode;

[[noreturn]] void refuse(const std::string& option, const std::string& text,
                         const std::string& bound) {
  throw Error(ErrorCode::kInvalidArgument, option + " is \"" + text + "\": must be " + bound);
}

// The values from `first` to `last` by their names.
template <typename Enum>
Enum parse_by_name(const std::string& option, const std::string& text, Enum first, Enum last) {
  std::string names;
  for (int value = static_cast<int>(first); value <= static_cast<int>(last); value++) {
    const std::string name = to_string(static_cast<Enum>(value));
    if (name == text) return static_cast<Enum>(value);
    names += (names.empty() ? "" : ", ") + name;
  }
  refuse(option, text, "one of " + names);
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string refuse_nan(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is no number" : "";
}

std::string refuse_past_uint64(const std::string& text) {
  errno = 0;
  std::strtoull(text.c_str(), nullptr, 0);  // takes -1 for 2^64 - 1
  const bool fits = errno == 0 && text.find('-') == text.npos;
  return fits ? "" : text + " is not in [0, 18446744073709551615]";
}

std::string parse_context_device_option(const std::string& text) {
  std::string lowered = text;
  std::ranges::transform(lowered, lowered.begin(), [](unsigned char c) { return std::tolower(c); });
  return lowered;
}

rapt::DType parse_dtype_option(const std::string& option, const std::string& text) {
  if (const auto dtype = rapt::parse_dtype(text)) return *dtype;
  return parse_by_name(option, text, rapt::DType::kFloat32, rapt::DType::kFloat8E5M2);
}

rapt::KvFormat parse_kv_format_option(const std::string& option, const std::string& text) {
  if (const auto format = rapt::parse_kv_format(text)) return *format;
  return parse_by_name(option, text, rapt::KvFormat::kAuto, rapt::KvFormat::kTurboQuant3BitNc);
}

rapt::KvLayout parse_layout_option(const std::string& option, const std::string& text) {
  return parse_by_name(option, text, rapt::KvLayout::kNHD, rapt::KvLayout::kHND);
}

rapt::KvScales parse_kv_scales_option(const std::string& option, const std::string& text) {
  return parse_by_name(option, text, rapt::KvScales::kNone, rapt::KvScales::kPerTokenHead);
}

rapt::AttentionKind parse_kind_option(const std::string& option, const std::string& text) {
  return parse_by_name(option, text, rapt::AttentionKind::kDecoder,
                       rapt::AttentionKind::kEncoderDecoder);
}

rapt::CpuIsa parse_isa_option(const std::string& option, const std::string& text) {
  if (const auto isa = rapt::parse_cpu_isa(text)) return *isa;
  refuse(option, text, "baseline, avx2, avx512, avx512_bf16 or amx_bf16");
}

rapt::Window parse_window_option(const std::string& option, const std::string& text) {
  const size_t comma = text.find(',');
  if (comma != std::string::npos) {
    const auto left = parse_integer(std::string_view(text).substr(0, comma));
    const auto right = parse_integer(std::string_view(text).substr(comma + 1));
    if (left && right) return {*left, *right};
  }
  refuse(option, text, "two integers L,R, each -1 for no limit, such as 127,0");
}

}  // namespace rapt_tool
