#include "emulator/order.hpp"

#include "core/check.hpp"

namespace rapt::emulator {

namespace {

bool checked() {
  return grid->options.check_order;
}

[[noreturn]] void report(const Thread& t, const SharedShadow::Conflict& conflict, const char* who,
                         const char* does) {
  const Block& block = *t.block;
  if (conflict.unwritten)
    fail_in(t, concat(who, "reads byte ", conflict.offset,
                      " of shared memory, which was never written"));
  const Access& past = *conflict.past;
  fail_in(t, concat("race on byte ", conflict.offset, " of shared memory: ", who, does,
                    " it, and nothing orders that after the ", past.write ? "write" : "read",
                    " by ", block.describe_agent(past.agent), ", ", past.origin.describe()));
}

// Everything t knows, as another block sees it.
BlockTimes everything_known(const Thread& t) {
  BlockTimes all;
  if (t.known->others) all = *t.known->others;
  Times& own = all[t.block->number];
  own = t.known->own;
  own[t.index] = t.time;
  uint32_t& copies = own[t.block->copy_agent(t)];
  copies = std::max(copies, t.groups_over);
  return all;
}

std::shared_ptr<const BlockTimes> joined(const std::shared_ptr<const BlockTimes>& a,
                                         const std::shared_ptr<const BlockTimes>& b) {
  if (!a || a == b) return b;
  if (!b) return a;
  auto both = std::make_shared<BlockTimes>(*a);
  raise(*both, *b);
  return both;
}

}  // namespace

void release(Thread& t, ClockBuilder& into) {
  if (!checked()) return;
  into.add(t.known);
  into.add(t.index, t.time, t.fenced_time);
  into.add(t.block->copy_agent(t), t.groups_over, t.fenced_groups);
  ++t.time;
}

void acquire(Thread& t, const ClockRef& known) {
  if (!known || known == t.known) return;
  auto& last = t.warp->learned;
  if (last.from != t.known || last.with != known) {
    auto both = std::make_shared<Clock>(*t.known);
    both->join(*known);
    last = {t.known, known, both};
  }
  t.known = last.to;
}

void check_shared_access(Thread& t, uint32_t address, uint32_t bytes, bool write, bool ordinary) {
  if (!checked()) return;
  const Block& block = *t.block;
  const uint32_t own_copies = block.copy_agent(t);
  const auto before = [&](const Access& past) {
    if (past.agent == t.index) return true;
    if (past.agent == own_copies) return past.time <= t.groups_over;
    return past.time <= t.known->own[past.agent];
  };
  Access access{t.time, t.index, write, false, t.now};
  access.origin.ordinary = ordinary;
  if (const auto conflict = t.block->shadow.record(address - kSharedBase, bytes, access, before)) {
    t.now.ordinary = ordinary;
    report(t, conflict, "", write ? "writes" : "reads");
  }
}

void check_copy_lands(Thread& t, const Copy& copy) {
  if (!checked()) return;
  const uint32_t own_copies = t.block->copy_agent(t);
  const auto before = [&](const Access& past) {
    if (past.agent == t.index) return past.time <= copy.time;
    if (past.agent == own_copies) return past.time <= copy.groups_over;
    return past.time <= copy.known->own[past.agent];
  };
  const Access access{copy.group, own_copies, true, false, copy.origin};
  if (const auto conflict = t.block->shadow.record(copy.shared - kSharedBase, 16, access, before))
    report(t, conflict, ("its " + copy.origin.describe() + " ").c_str(), "writes");
}

void Issue::add(const Thread& t) {
  if (!checked()) return;
  own[t.lane] = {t.time, t.groups_over, t.fenced_time, t.fenced_groups};
  if (!known) known = t.known;
  if (known == t.known) return;
  auto common = std::make_shared<Clock>(*known);
  lower(common->own, t.known->own);
  lower(common->fenced, t.known->fenced);
  known = common;
}

void check_async_access(const Thread& t, const Warp& warp, const Issue& issue, uint32_t address,
                        uint32_t bytes, Access access) {
  if (!checked()) return;
  Block& block = *warp.block;
  const uint32_t first_lane = warp.index * kLanes;
  const auto before = [&](const Access& past) {
    const bool needs_fence = past.write && !past.asynchronous;
    const Clock& known = *issue.known;
    if (past.time <= (needs_fence ? known.fenced : known.own)[past.agent]) return true;
    // Otherwise it may be an issuing lane's own.
    const bool is_copy = past.agent >= block.num_threads();
    const uint32_t lane = past.agent - first_lane - (is_copy ? block.num_threads() : 0);
    if (lane >= kLanes) return false;
    const Issue::Own& own = issue.own[lane];
    if (is_copy) return past.time <= (needs_fence ? own.fenced_groups : own.groups);
    return past.time <= (needs_fence ? own.fenced_time : own.time);
  };
  access.asynchronous = true;
  if (const auto conflict = block.shadow.record(address - kSharedBase, bytes, access, before))
    report(t, conflict, concat("its ", access.origin.describe(), " ").c_str(),
           access.write ? "writes" : "reads");
}

void acquire_agent(Thread& t, uint32_t agent, uint32_t time) {
  if (!checked() || t.known->own[agent] >= time) return;
  auto& last = t.warp->learned_of_agent;
  if (last.from != t.known || last.agent != agent || last.time != time) {
    auto clock = std::make_shared<Clock>(*t.known);
    clock->own[agent] = time;
    last = {t.known, clock, agent, time};
  }
  t.known = last.to;
}

void fence_proxy(Thread& t) {
  if (!checked()) return;
  t.fenced_time = t.time++;
  t.fenced_groups = t.groups_over;
  auto& last = t.warp->learned_of_fence;
  if (last.from != t.known) {
    auto clock = std::make_shared<Clock>(*t.known);
    raise(clock->fenced, clock->own);
    last = {t.known, clock};
  }
  t.known = last.to;
}

void check_global_access(Thread& t, const Allocation& allocation, const void* p, uint32_t bytes,
                         GlobalAccess access, bool ordinary) {
  if (!checked()) return;
  const bool writes = access == GlobalAccess::kStore || access == GlobalAccess::kAtomic;
  const Block& block = *t.block;
  const auto before = [&](const GlobalWrite& past) {
    if (past.block == block.number)
      return past.thread == t.index || past.time <= t.known->own[past.thread];
    if (!t.known->others) return false;
    const auto times = t.known->others->find(past.block);
    return times != t.known->others->end() && past.time <= times->second[past.thread];
  };
  const auto check = [&](const GlobalWrite& past) {
    const bool both_atomic = past.atomic && access == GlobalAccess::kAtomic;
    const bool read_only = access == GlobalAccess::kReadOnlyLoad;
    if (!read_only && (both_atomic || before(past))) return;
    t.now.ordinary = ordinary;
    const auto by = concat("the write by block ", past.block, " warp ", past.thread / kLanes,
                           " lane ", past.thread % kLanes, ", ", past.origin.describe());
    const size_t offset = static_cast<const char*>(p) - allocation.begin;
    if (read_only)
      fail_in(t, concat("byte ", offset, " of ", allocation.name,
                        " is read as what no thread of the launch writes, in spite of ", by));
    fail_in(t, concat("race on byte ", offset, " of ", allocation.name, ": ",
                      writes ? "writes" : "reads", " it, and nothing orders that after ", by));
  };
  grid->global_shadow.for_writes(p, bytes, check);
  if (!writes) return;
  GlobalWrite write{block.number, t.index, t.time, access == GlobalAccess::kAtomic, t.now};
  write.origin.ordinary = ordinary;
  grid->global_shadow.record(p, bytes, write);
}

void fence_global(Thread& t) {
  if (!checked()) return;
  if (t.observed) {
    auto clock = std::make_shared<Clock>(*t.known);
    BlockTimes others = *t.observed;
    if (const auto own = others.find(t.block->number); own != others.end()) {
      raise(clock->own, own->second);
      others.erase(own);
    }
    clock->others = joined(clock->others, std::make_shared<BlockTimes>(std::move(others)));
    t.known = clock;
    t.observed.reset();
  }
  t.published = std::make_shared<BlockTimes>(everything_known(t));
  ++t.time;
}

void synchronize_at(Thread& t, const void* p) {
  if (!checked()) return;
  auto& here = grid->published[p];
  t.observed = joined(t.observed, here);
  here = joined(here, t.published);
}

}  // namespace rapt::emulator
