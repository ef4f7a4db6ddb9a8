#include "core/check.hpp"
#include "emulator/instructions.hpp"
#include "emulator/order.hpp"

namespace rapt::emulator {

// `threads` of them come to barrier `id`; the last one wakes those that wait.
static void come_to_barrier(uint32_t id, uint32_t threads, bool waits = true) {
  Thread& t = *self;
  Block& block = *t.block;
  NamedBarrier& barrier = block.barriers[id];
  if (!barrier.arrived) barrier.expected = threads;
  if (barrier.expected != threads)
    fail_in(t, concat("barrier ", id, " is for ", threads, " threads here and for ",
                      barrier.expected, " elsewhere"));

  if (barrier.who[t.index]) fail_in(t, concat("comes to barrier ", id, " twice in one phase"));

  // The instruction is aligned: all lanes of a warp come from one line.
  const uint32_t first = t.warp->index * kLanes;
  bool first_lane = true;
  for (uint32_t i = first; i < first + kLanes && i < block.threads.size(); ++i)
    first_lane = first_lane && !barrier.who[i];
  Origin& from = barrier.from[t.warp->index];
  if (first_lane) from = t.now;
  if (from.at != t.now.at) fail_in(t, concat("other lanes are at ", from.describe()));
  barrier.who[t.index] = true;

  release(t, barrier.clock);
  if (++barrier.arrived < barrier.expected) {
    if (waits) wait_for(Thread::Wait::kBarrier, id);
    return;
  }

  const ClockRef all = grid->options.check_order ? barrier.clock.take() : nullptr;
  barrier.arrived = 0;
  barrier.who.assign(barrier.who.size(), false);
  if (waits) acquire(t, all);
  for (Thread& other : block.threads)
    if (other.wait == Thread::Wait::kBarrier && other.wait_object == id) {
      acquire(other, all);
      wake(other);
    }
}

void sync_block(Location at) {
  const Instruction instruction("bar.sync 0", at);
  come_to_barrier(0, static_cast<uint32_t>(self->block->threads.size()));
}

static void come_to_named_barrier(uint32_t id, uint32_t threads, bool waits) {
  if (id == 0 || id >= kNamedBarriers)
    fail_in(*self, concat("barrier ", id, " is not one of 1 to ", kNamedBarriers - 1));
  if (threads == 0 || threads % kLanes || threads > self->block->threads.size())
    fail_in(*self, concat(threads, " threads are not whole warps of the block"));
  come_to_barrier(id, threads, waits);
}

void sync_named(uint32_t id, uint32_t threads, Location at) {
  const Instruction instruction("bar.sync", at);
  come_to_named_barrier(id, threads, true);
}

void arrive_named(uint32_t id, uint32_t threads, Location at) {
  const Instruction instruction("bar.arrive", at);
  come_to_named_barrier(id, threads, false);
}

}  // namespace rapt::emulator
