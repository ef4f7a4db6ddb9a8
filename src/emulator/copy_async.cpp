// cp.async: copies land, that is read global and write shared memory, any time from their issue to
// the wait that covers them. Nothing but that wait orders them, not even the issuing thread's own
// accesses or its other copies.
#include <cstring>

#include "core/check.hpp"
#include "emulator/instructions.hpp"
#include "emulator/memory_access.hpp"

namespace rapt::emulator {

namespace {

void land(Thread& t, const Copy& copy) {
  check_copy_lands(t, copy);
  char* to = shared_bytes(t, copy.shared, 16);
  std::memcpy(to, copy.global, copy.bytes);
  std::memset(to + copy.bytes, 0, 16 - copy.bytes);
}

// Some of the copies in flight land, when the seed wants it so.
void land_some(Thread& t) {
  if (grid->asynchrony != Grid::Asynchrony::kMixed) return;
  std::erase_if(t.copies, [&](const Copy& copy) {
    const bool now = grid->random.one_in(4);
    if (now) land(t, copy);
    return now;
  });
}

}  // namespace

void copy_async_16(uint32_t shared, const void* global, bool reads, Location at) {
  const Instruction instruction("cp.async", at);
  require_capability(80);
  Thread& t = *self;
  shared_bytes(t, shared, 16);
  const uint32_t bytes = reads ? 16 : 0;
  check_global(t, global, bytes, 16, GlobalAccess::kLoad);
  t.last_copy_group = t.groups_committed + 1;
  t.last_copy = t.now;
  t.copies.push_back(
      {shared, global, bytes, t.last_copy_group, t.now, t.known, t.time, t.groups_over});
  ++t.time;  // what the thread does from here on is not before the copy
  if (!grid->happens_early()) return;
  land(t, t.copies.back());
  t.copies.pop_back();
}

void copy_async_commit(Location at) {
  const Instruction instruction("cp.async.commit_group", at);
  ++self->groups_committed;
  land_some(*self);
}

void copy_async_wait(uint32_t pending, Location at) {
  const Instruction instruction("cp.async.wait_group", at);
  Thread& t = *self;
  const uint32_t over = t.groups_committed > pending ? t.groups_committed - pending : 0;
  while (!t.copies.empty() && t.copies.front().group <= over) {
    land(t, t.copies.front());
    t.copies.pop_front();
  }
  t.groups_over = std::max(t.groups_over, over);
  land_some(t);
}

}  // namespace rapt::emulator
