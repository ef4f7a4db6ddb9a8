#include "jit/hash.hpp"

#define XXH_INLINE_ALL  // from the header alone: nothing to link
#include <xxhash.h>

#include <cstdio>

namespace rapt::jit {

std::string Hash128::hex() const {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return text;
}

Hash128 hash_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace rapt::jit
