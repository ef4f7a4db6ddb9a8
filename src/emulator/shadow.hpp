// What was last done to each byte of shared memory, and by whom.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <unordered_map>
#include <utility>
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

  // What record() will need for a byte, on its way while other bytes are recorded.
  void prefetch(uint32_t offset) const {
    if (offset / kGranuleBytes < granules_.size())
      __builtin_prefetch(&granules_[offset / kGranuleBytes], 1);
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
    bool is_of_kind(const Entry& other) const {
      return agent == other.agent && write == other.write && mask == other.mask;
    }
  };
  static Entry* find(std::span<Entry> entries, const Entry& access) {
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return entry.is_of_kind(access); });
    return found == entries.end() ? nullptr : &*found;
  }

  static constexpr uint16_t kFew = 5;
  // A cache line. What four warps have read since it was written fits in; more entries are in
  // many_.
  struct alignas(64) Granule {
    Entry few[kFew];
    uint16_t written, count;
  };
  // Of what most threads read.
  struct Many {
    std::vector<Entry> entries;  // writes first
    size_t num_writes = 0;
    uint16_t recent[256] = {};  // the place of a read, by a hash

    uint16_t& place_of(const Entry& access) {
      return recent[(access.agent + 64u * static_cast<uint32_t>(std::countr_zero(access.mask))) %
                    std::size(recent)];
    }
    Entry* find(const Entry& access) {
      uint16_t& place = place_of(access);
      if (place < entries.size() && entries[place].is_of_kind(access)) return &entries[place];
      Entry* const found = SharedShadow::find(entries, access);
      if (found) place = static_cast<uint16_t>(found - entries.data());
      return found;
    }
    void append(const Entry& entry) {
      entries.push_back(entry);
      if (entry.write)
        std::swap(entries[num_writes++], entries.back());
      else
        place_of(entry) = static_cast<uint16_t>(entries.size() - 1);
    }
  };

  Conflict record_in(Granule& granule, const Entry& access, auto& before) {
    if (access.write)
      granule.written |= access.mask;
    else if (access.mask & ~granule.written)
      return {.unwritten = true};
    Many* const many = granule.count > kFew ? &many_[&granule] : nullptr;
    const std::span<Entry> entries =
        many ? std::span(many->entries) : std::span(granule.few, granule.count);
    // Reads are compared with writes alone.
    for (Entry& entry : many && !access.write ? entries.first(many->num_writes) : entries)
      if (entry.mask & access.mask && (access.write || entry.write) && !before(entry.access())) {
        conflict_ = entry.access();
        conflict_.origin = origins_[entry.origin];
        return {.past = &conflict_};
      }
    if (!access.write) {
      // An earlier one of this kind, which this one stands for.
      Entry* const same = many ? many->find(access) : find(entries, access);
      same ? void(*same = access) : append(granule, access);
      return {};
    }
    // What comes later is compared with a write, which is after all these.
    for (Entry& entry : entries) entry.mask &= ~access.mask;
    const auto kept = std::remove_if(entries.begin(), entries.end(),
                                     [](const Entry& entry) { return entry.mask == 0; });
    shorten(granule, static_cast<uint16_t>(kept - entries.begin()));
    append(granule, access);
    return {};
  }

  void append(Granule& granule, const Entry& entry) {
    if (granule.count < kFew) {
      granule.few[granule.count] = entry;
    } else {
      Many& many = many_[&granule];
      if (granule.count == kFew) {
        many.entries.clear(), many.num_writes = 0;
        for (const Entry& one : granule.few) many.append(one);
      }
      many.append(entry);
    }
    granule.count++;
  }
  // To the first `count` entries.
  void shorten(Granule& granule, uint16_t count) {
    if (granule.count > kFew) {
      Many& many = many_[&granule];
      many.entries.resize(count);
      many.num_writes = static_cast<size_t>(
          std::count_if(many.entries.begin(), many.entries.end(), std::mem_fn(&Entry::write)));
      if (count <= kFew) std::copy(many.entries.begin(), many.entries.end(), granule.few);
    }
    granule.count = count;
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
  std::unordered_map<const Granule*, Many> many_;
  std::vector<Origin> origins_ = {{}};
  uint16_t recent_[64] = {};  // in origins_, by a hash
  Access conflict_;
};

}  // namespace rapt::emulator
