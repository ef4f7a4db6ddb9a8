#include "emulator/mbarrier.hpp"

#include "core/check.hpp"
#include "emulator/instructions.hpp"
#include "emulator/memory_access.hpp"

namespace rapt::emulator {

namespace {

// The hardware's layout is not public; this is ours. `mark` is what neither poison nor stray stores
// are likely to have.
struct Mbarrier {
  uint64_t due : 20;       // arrivals of this phase
  uint64_t arrivals : 20;  // of every phase
  int64_t bytes_due : 21;
  uint64_t parity : 1;
  uint64_t mark : 2;
};
static_assert(sizeof(Mbarrier) == 8);
constexpr uint32_t kMaxArrivals = (1u << 20) - 1;
constexpr uint32_t kMark = 2;

Mbarrier& mbarrier_at(const Thread& t, uint32_t address) {
  return *reinterpret_cast<Mbarrier*>(shared_bytes(t, address, sizeof(Mbarrier)));
}

// Starts the next phase if this one is complete, and wakes who waited for it.
void advance(Block& block, uint32_t address, Mbarrier& barrier) {
  if (barrier.due || barrier.bytes_due) return;
  barrier.due = barrier.arrivals;
  barrier.parity ^= 1;
  MbarrierClock& clock = block.mbarrier_clocks[address];
  if (grid->options.check_order) clock.done = clock.pending.take();
  for (Thread& t : block.threads)
    if (t.wait == Thread::Wait::kMbarrier && t.wait_object == address &&
        t.wait_parity != barrier.parity) {
      acquire(t, clock.done);
      wake(t);
    }
}

}  // namespace

// Fails unless an initialised mbarrier is at the address.
static void check_initialised(const Thread& t, uint32_t address) {
  if (mbarrier_at(t, address).mark != kMark)
    fail_in(t, concat("no mbarrier is initialised at byte ", address - kSharedBase));
}

void check_mbarrier(Thread& t, uint32_t address) {
  check_initialised(t, address);
  check_shared_access(t, address, sizeof(Mbarrier), false);
}

std::string describe_mbarrier(const Block& block, uint32_t address) {
  const auto& barrier = *reinterpret_cast<const Mbarrier*>(block.shared + address - kSharedBase);
  return concat("the current one, of parity ", barrier.parity, ", waits for ", barrier.due, " of ",
                barrier.arrivals, " arrivals and ", barrier.bytes_due, " bytes");
}

void complete_bytes(const Thread& t, uint32_t address, uint32_t bytes, uint32_t agent,
                    uint32_t time) {
  check_initialised(t, address);
  Mbarrier& barrier = mbarrier_at(t, address);
  barrier.bytes_due = barrier.bytes_due - static_cast<int64_t>(bytes);
  if (grid->options.check_order) {
    ClockBuilder& pending = t.block->mbarrier_clocks[address].pending;
    pending.add(t.block->nothing_known);
    pending.add(agent, time, 0);
  }
  advance(*t.block, address, barrier);
}

void barrier_init(uint32_t address, uint32_t arrivals, Location at) {
  const Instruction instruction("mbarrier.init", at);
  require_capability(90);
  if (arrivals == 0 || arrivals > kMaxArrivals)
    fail_in(*self, concat(arrivals, " arrivals, must be 1 to ", kMaxArrivals));
  check_shared_access(*self, address, sizeof(Mbarrier), true);
  mbarrier_at(*self, address) = {arrivals, arrivals, 0, 0, kMark};
}

void barrier_arrive(uint32_t address, uint32_t expect_bytes, Location at) {
  const Instruction instruction("mbarrier.arrive", at);
  require_capability(90);
  check_mbarrier(*self, address);
  Mbarrier& barrier = mbarrier_at(*self, address);
  if (barrier.due == 0)
    fail_in(*self, "one arrival too many: " + describe_mbarrier(*self->block, address));
  release(*self, self->block->mbarrier_clocks[address].pending);
  barrier.bytes_due = barrier.bytes_due + static_cast<int64_t>(expect_bytes);
  barrier.due = barrier.due - 1;
  advance(*self->block, address, barrier);
}

void barrier_wait(uint32_t address, uint32_t parity, Location at) {
  const Instruction instruction("mbarrier.try_wait", at);
  require_capability(90);
  if (parity > 1) fail_in(*self, concat("parity ", parity, ", must be 0 or 1"));
  check_mbarrier(*self, address);
  if (mbarrier_at(*self, address).parity == parity)
    wait_for(Thread::Wait::kMbarrier, address, parity);
  else
    acquire(*self, self->block->mbarrier_clocks[address].done);
}

void fence_async_shared(Location at) {
  const Instruction instruction("fence.proxy.async", at);
  require_capability(90);
  fence_proxy(*self);
}

}  // namespace rapt::emulator
