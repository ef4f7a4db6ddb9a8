// What was last done to each byte of shared memory, and by whom.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "emulator/access.hpp"

namespace rapt::emulator {

class SharedShadow {
 public:
  explicit SharedShadow(uint32_t bytes) : granules_((bytes + kGranuleBytes - 1) / kGranuleBytes) {}

  // What a new access meets: nothing, a byte never written, or a past access that is not before it.
  struct Conflict {
    bool unwritten = false;
    const Access* past = nullptr;
    uint32_t offset = 0;  // of the first granule that has the conflict
    explicit operator bool() const { return unwritten || past; }
  };

  // Records an access to `bytes` bytes at `offset`. before(past) says whether a past access is
  // ordered before this one.
  template <class Before>
  Conflict record(uint32_t offset, uint32_t bytes, const Access& access, Before&& before) {
    for (uint32_t at = offset; at < offset + bytes;) {
      const uint32_t first = at % kGranuleBytes;
      const uint32_t last = std::min(kGranuleBytes, first + offset + bytes - at);
      const auto mask = static_cast<uint16_t>((1u << last) - (1u << first));
      if (Conflict conflict = record_in(granules_[at / kGranuleBytes], mask, access, before)) {
        conflict.offset = at;
        return conflict;
      }
      at += last - first;
    }
    return {};
  }

 private:
  // Most accesses are 16 bytes, so most granules have one mask.
  static constexpr uint32_t kGranuleBytes = 16;
  struct Entry {
    Access access;
    uint16_t mask;  // bytes of the granule
  };
  struct Granule {
    std::vector<Entry> entries;
    uint16_t written = 0;
  };

  template <class Before>
  Conflict record_in(Granule& granule, uint16_t mask, const Access& access, Before& before) {
    if (access.write)
      granule.written |= mask;
    else if (mask & ~granule.written)
      return {.unwritten = true};
    size_t kept = 0;
    bool merged = false;
    for (Entry& entry : granule.entries) {
      if (entry.mask & mask && (access.write || entry.access.write)) {
        if (!before(entry.access)) {
          conflict_ = entry.access;
          return {.past = &conflict_};
        }
        // What comes later is compared with this write, which is after the entry.
        if (access.write) entry.mask &= ~mask;
      }
      const bool same_kind =
          entry.access.agent == access.agent && entry.access.write == access.write;
      if (same_kind && !merged && entry.mask == mask) {
        entry.access = access;
        merged = true;
      }
      if (entry.mask) granule.entries[kept++] = entry;
    }
    granule.entries.resize(kept);
    if (!merged) granule.entries.push_back({access, mask});
    return {};
  }

  std::vector<Granule> granules_;
  Access conflict_;
};

}  // namespace rapt::emulator
