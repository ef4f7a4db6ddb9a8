// XXH3-128: names of cache entries, and proof that bytes are the ones that were written. It finds
// every accident, and is no defence against who may write to the user's own folders.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace rapt::jit {

struct Hash128 {
  uint64_t low = 0, high = 0;

  auto operator<=>(const Hash128&) const = default;
  std::string hex() const;  // 32 digits
};

Hash128 hash_of(std::string_view bytes);

}  // namespace rapt::jit
