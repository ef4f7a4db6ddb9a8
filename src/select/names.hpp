// Names of enumerators, and lists of things as words: "16, 32 or 64".
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "rapt/select.hpp"
#include "select/capability.hpp"

namespace rapt {

inline constexpr std::array kAllBackends = {
    BackendId::kFlashAttention,
    BackendId::kFlashInfer,
    BackendId::kPortable,
    BackendId::kFlex,
    BackendId::kTurboQuant,
    BackendId::kPagedAttention,
    BackendId::kCpu,
    BackendId::kReference,
};

// "a", "a or b", "a, b or c".
std::string join_with_or(std::span<const std::string> words);

template <typename Range>
std::string list_of(const Range& values) {
  std::vector<std::string> words;
  for (const auto& value : values) {
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(value)>>)
      words.emplace_back(to_string(value));
    else
      words.push_back(concat(value));
  }
  return join_with_or(words);
}

template <typename Enum>
std::string list_of(const EnumSet<Enum>& set) {
  std::vector<std::string> words;
  set.for_each([&](Enum member) { words.emplace_back(to_string(member)); });
  return join_with_or(words);
}

// "1-64", "8", "16 or more".
std::string to_string(const IntRange& range);
// "9.0" for 90.
std::string compute_capability_name(int32_t compute_capability);
// "a multiple of 16", "16, 32 or 64".
std::string to_string(const PageSizes& sizes);

}  // namespace rapt
