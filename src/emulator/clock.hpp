// Vector clocks: what is known to be over.
//
// An agent is whatever accesses memory in program order: a thread of the block, the asynchronous
// copies of a thread, a warp's products or tensor stores, a tensor load. A clock says up to which
// of its times each agent's accesses happened before. Ordinary stores count for asynchronous
// operations of the other proxy only with a fence.proxy.async on the way: `fenced` says up to which
// times there was one. Clocks are immutable once made, so that the lanes of a warp, which learn the
// same things, share one; "is it the same?" is a comparison of pointers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace rapt::emulator {

using Times = std::vector<uint32_t>;  // by agent

inline void raise(Times& to, const Times& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], from[i]);
}

inline void lower(Times& to, const Times& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = std::min(to[i], from[i]);
}

// Times of several blocks, by the block's number in the grid.
using BlockTimes = std::map<uint32_t, Times>;

inline void raise(BlockTimes& to, const BlockTimes& from) {
  for (const auto& [block, times] : from) {
    const auto [entry, is_new] = to.try_emplace(block, times);
    if (!is_new) raise(entry->second, times);
  }
}

struct Clock {
  Times own, fenced;                         // of this block's agents
  std::shared_ptr<const BlockTimes> others;  // null until a fence tells of other blocks

  void join(const Clock& other) {
    raise(own, other.own);
    raise(fenced, other.fenced);
    if (!other.others || other.others == others) return;
    if (!others) {
      others = other.others;
      return;
    }
    auto both = std::make_shared<BlockTimes>(*others);
    raise(*both, *other.others);
    others = both;
  }
};
using ClockRef = std::shared_ptr<const Clock>;

// What the threads that come to a barrier know together.
class ClockBuilder {
 public:
  void add(const ClockRef& known) {
    if (known == last_) return;
    if (clock_)
      clock_->join(*known);
    else
      clock_ = std::make_shared<Clock>(*known);
    last_ = known;
  }
  void add(uint32_t agent, uint32_t time, uint32_t fenced) {
    clock_->own[agent] = std::max(clock_->own[agent], time);
    clock_->fenced[agent] = std::max(clock_->fenced[agent], fenced);
  }
  ClockRef take() {
    last_.reset();
    return std::move(clock_);
  }

 private:
  std::shared_ptr<Clock> clock_;
  ClockRef last_;
};

}  // namespace rapt::emulator
