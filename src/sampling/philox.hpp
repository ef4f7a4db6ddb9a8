// Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a
// counter-based generator, so a draw depends on its key and counter alone and is the same on any
// thread or device.
#pragma once

#include <array>
#include <cstdint>

namespace rapt {

constexpr std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter,
                                                std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;  // section 3.4's
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1
  for (int round = 0; round < kRounds; round++) {
    const uint64_t product0 = kMultiplier0 * counter[0], product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// Draw number `offset` of the stream `seed`: uniform in [0, 1), 53 bits.
constexpr double philox_uniform(uint64_t seed, uint64_t offset) {
  const std::array<uint32_t, 4> words =
      philox4x32_10({static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32), 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>((static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 11) * 0x1p-53;
}

}  // namespace rapt
