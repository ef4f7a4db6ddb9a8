#include "jit/architecture.hpp"

#include <charconv>

#include "core/check.hpp"

namespace rapt::jit {

std::string Architecture::name() const {
  return concat("sm_", number, suffix ? std::string(1, suffix) : "");
}

bool Architecture::runs_on(int32_t compute_capability) const {
  if (suffix == 'a') return compute_capability == number;
  return compute_capability / 10 == number / 10 && compute_capability >= number;
}

Architecture parse_architecture(std::string_view text) {
  constexpr int32_t kFirst = 75, kLast = 999;  // the oldest that NVRTC 13 knows; three digits
  std::string_view rest = text;
  if (rest.substr(0, 3) == "sm_") rest.remove_prefix(3);
  Architecture architecture;
  const char* const end = rest.data() + rest.size();
  const auto [after, error] = std::from_chars(rest.data(), end, architecture.number);
  const bool suffixed =
      error == std::errc() && after + 1 == end && (*after == 'a' || *after == 'f');
  if (suffixed) architecture.suffix = *after;
  check(error == std::errc() && (after == end || suffixed) && architecture.number >= kFirst &&
            architecture.number <= kLast,
        "architecture is \"", text,
        "\": must be a compute capability from 75 like 80, 90a or 100f");
  return architecture;
}

}  // namespace rapt::jit
