// Who last wrote each byte of global memory in this launch.
//
// Only writes are remembered: a read or write that is not ordered after the last write is found, a
// write that should have waited for a read is not. Inputs, which nobody writes, cost nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "emulator/access.hpp"

namespace rapt::emulator {

struct GlobalWrite {
  uint32_t block;   // number in the grid
  uint32_t thread;  // in the block
  uint32_t time;
  bool atomic;
  Origin origin;
};

class GlobalShadow {
 public:
  GlobalShadow() : writes_(1) {}

  // Calls visit(write) for the writes that `bytes` bytes at p hold, most often one.
  template <class Visit>
  void for_writes(const void* p, uint32_t bytes, Visit&& visit) const {
    if (writes_.size() == 1) return;
    uint32_t previous = 0;
    for_parts(p, bytes, [&](uintptr_t page, size_t begin, size_t end) {
      const auto found = last_write_.find(page);
      if (found == last_write_.end()) return;
      for (size_t i = begin; i < end; ++i) {
        const uint32_t id = found->second[i];
        if (id && id != previous) visit(writes_[id]);
        previous = id;
      }
    });
  }

  void record(const void* p, uint32_t bytes, const GlobalWrite& write) {
    const auto id = static_cast<uint32_t>(writes_.size());
    writes_.push_back(write);
    for_parts(p, bytes, [&](uintptr_t page, size_t begin, size_t end) {
      std::vector<uint32_t>& ids = last_write_[page];
      if (ids.empty()) ids.resize(kPageBytes);
      std::fill(&ids[begin], &ids[0] + end, id);
    });
  }

 private:
  // Of an allocation of gigabytes, such as a cache, a launch writes little.
  static constexpr size_t kPageBytes = 4096;

  // visit(page, begin, end) for the bytes [begin, end) of each page that is touched.
  template <class Visit>
  static void for_parts(const void* p, uint32_t bytes, Visit&& visit) {
    auto at = reinterpret_cast<uintptr_t>(p);
    for (const uintptr_t end = at + bytes; at < end;) {
      const uintptr_t page = at / kPageBytes, next = std::min((page + 1) * kPageBytes, end);
      visit(page, at - page * kPageBytes, next - page * kPageBytes);
      at = next;
    }
  }

  std::vector<GlobalWrite> writes_;                                  // [0] stands for none
  std::unordered_map<uintptr_t, std::vector<uint32_t>> last_write_;  // by page, by byte
};

}  // namespace rapt::emulator
