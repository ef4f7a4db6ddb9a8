// What was last done to each byte of shared memory, and by whom.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
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
    Entry entry{access.time,
                static_cast<uint16_t>(access.agent),
                number_of(access.origin),
                0,
                access.write,
                access.asynchronous};
    for (uint32_t at = offset; at < offset + bytes;) {
      const uint32_t first = at % kGranuleBytes;
      const uint32_t last = std::min(kGranuleBytes, first + offset + bytes - at);
      entry.mask = static_cast<uint16_t>((1u << last) - (1u << first));
      if (Conflict conflict = record_in(granules_[at / kGranuleBytes], entry, before)) {
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
  // There are many of these and they are looked at often: they are small.
  struct Entry {
    uint32_t time;
    uint16_t agent;
    uint16_t origin;  // in origins_
    uint16_t mask;    // bytes of the granule
    bool write, asynchronous;

    Access access() const { return {time, agent, write, asynchronous, {}}; }
  };
  struct Granule {
    std::vector<Entry> entries;
    uint16_t written = 0;
  };

  Conflict record_in(Granule& granule, const Entry& access, auto& before) {
    if (access.write)
      granule.written |= access.mask;
    else if (access.mask & ~granule.written)
      return {.unwritten = true};
    Entry* same = nullptr;  // an earlier access of this kind, which this one stands for
    for (Entry& entry : granule.entries) {
      if (entry.mask & access.mask && (access.write || entry.write) && !before(entry.access())) {
        conflict_ = entry.access();
        conflict_.origin = origins_[entry.origin];
        return {.past = &conflict_};
      }
      if (entry.agent == access.agent && entry.write == access.write && entry.mask == access.mask)
        same = &entry;
    }
    // What comes later is compared with a write, which is after all these.
    if (access.write && !granule.entries.empty()) {
      for (Entry& entry : granule.entries) entry.mask &= ~access.mask;
      std::erase_if(granule.entries, [](const Entry& entry) { return entry.mask == 0; });
      same = nullptr;
    }
    if (same)
      *same = access;
    else
      granule.entries.push_back(access);
    return {};
  }

  // Instructions and lines of a kernel: hundreds at most.
  uint16_t number_of(const Origin& origin) {
    uint16_t& recent = recent_[(reinterpret_cast<uintptr_t>(origin.instruction) / 4 +
                                2 * origin.at.line + origin.ordinary) %
                               std::size(recent_)];
    if (origins_[recent] == origin) return recent;
    const auto found = std::find(origins_.begin(), origins_.end(), origin);
    recent = static_cast<uint16_t>(found - origins_.begin());
    if (found == origins_.end()) origins_.push_back(origin);
    return recent;
  }

  std::vector<Granule> granules_;
  std::vector<Origin> origins_ = {{}};
  uint16_t recent_[64] = {};  // in origins_, by a hash
  Access conflict_;
};

}  // namespace rapt::emulator
