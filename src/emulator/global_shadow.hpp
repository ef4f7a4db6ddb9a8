// Who last wrote each byte of global memory in this launch.
//
// Only writes are remembered: a read or write that is not ordered after the last write is found, a
// write that should have waited for a read is not. Inputs, which nobody writes, cost nothing.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "emulator/access.hpp"
#include "emulator/memory.hpp"

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
  void for_writes(const Allocation& allocation, const void* p, uint32_t bytes,
                  Visit&& visit) const {
    const auto found = last_write_.find(&allocation);
    if (found == last_write_.end()) return;
    const size_t offset = static_cast<const char*>(p) - allocation.begin;
    uint32_t previous = 0;
    for (size_t i = offset; i < offset + bytes; ++i) {
      const uint32_t id = found->second[i];
      if (id && id != previous) visit(writes_[id]);
      previous = id;
    }
  }

  void record(const Allocation& allocation, const void* p, uint32_t bytes,
              const GlobalWrite& write) {
    std::vector<uint32_t>& ids = last_write_[&allocation];
    if (ids.empty()) ids.resize(allocation.end - allocation.begin);
    writes_.push_back(write);
    const size_t offset = static_cast<const char*>(p) - allocation.begin;
    for (size_t i = offset; i < offset + bytes; ++i)
      ids[i] = static_cast<uint32_t>(writes_.size() - 1);
  }

 private:
  std::vector<GlobalWrite> writes_;                                          // [0] stands for none
  std::unordered_map<const Allocation*, std::vector<uint32_t>> last_write_;  // by byte
};

}  // namespace rapt::emulator
