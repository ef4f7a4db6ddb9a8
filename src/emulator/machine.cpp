#include "emulator/machine.hpp"

#include <cstring>

#include "core/check.hpp"
#include "emulator/warpgroup.hpp"

namespace rapt::emulator {

std::string Thread::describe() const {
  const BlockIndex& at = block->index;
  return concat("block (", at.x, ", ", at.y, ", ", at.z, ") warp ", warp->index, " lane ", lane);
}

std::string Block::describe_agent(uint32_t agent) const {
  if (agent >= load_agent(0)) return "a tensor load";
  if (agent >= store_agent(warps[0]))
    return concat("a tensor store of warp ", agent - store_agent(warps[0]));
  if (agent >= product_agent(warps[0]))
    return concat("a product of warp ", agent - product_agent(warps[0]));
  const uint32_t thread = agent % num_threads();
  return concat(agent < num_threads() ? "" : "a copy of ", "warp ", thread / kLanes, " lane ",
                thread % kLanes);
}

// Where every fibre starts.
static void run_thread() {
  Thread& t = *self;
  grid->kernel();
  t.in_emulator = true;
  t.now = {"its end", {}};
  if (t.last_copy_group > t.groups_over) fail_in(t, "no wait covers its " + t.last_copy.describe());
  if (t.warp->products && !t.warp->products->in_flight.empty())
    fail_in(t, "no wait covers the products in flight");
  t.warp->live &= ~(1u << t.lane);
  --t.block->live;
  wait_for(Thread::Wait::kExited, 0);
  __builtin_unreachable();
}

Block::Block(Grid& of_grid, BlockIndex at, uint32_t grid_number)
    : grid(of_grid),
      index(at),
      number(grid_number),
      threads(grid.shape.threads),
      warps((grid.shape.threads + kLanes - 1) / kLanes),
      live(grid.shape.threads),
      stacks(grid.stack_pool.take(static_cast<int>(grid.shape.threads), grid.options.stack_bytes)),
      shared_pages(grid.shape.shared_bytes),
      shared(shared_pages.begin()),
      shadow(grid.options.check_order ? grid.shape.shared_bytes : 0),
      load_times(kLoadAgents) {
  std::memset(shared, 0xFF, shared_pages.end() - shared);  // NaN
  if (grid.options.check_order)
    nothing_known =
        std::make_shared<Clock>(Clock{Times(num_agents()), Times(num_agents()), nullptr});
  for (uint32_t i = 0; i < threads.size(); ++i) {
    Thread& t = threads[i];
    t.block = this;
    t.index = i;
    t.lane = i % kLanes;
    t.warp = &warps[i / kLanes];
    t.known = nothing_known;
    t.stack = stacks->bottom(i), t.stack_end = stacks->top(i);
    t.fiber.start(stacks->bottom(i), stacks->top(i), run_thread);
  }
  for (uint32_t w = 0; w < warps.size(); ++w) {
    Warp& warp = warps[w];
    const uint32_t lanes = std::min<uint32_t>(kLanes, grid.shape.threads - w * kLanes);
    warp.block = this;
    warp.index = w;
    warp.lanes = &threads[w * kLanes];
    warp.live = warp.ready = lanes == kLanes ? kAllLanes : (1u << lanes) - 1;
    warp.rank = grid.options.seed ? grid.random.next() : ~0ull;
  }
  for (NamedBarrier& barrier : barriers) {
    barrier.who.resize(threads.size());
    barrier.from.resize(warps.size());
  }
}

Block::~Block() {
  grid.stack_pool.give_back(std::move(stacks));
}

void fail_in(const Thread& thread, const std::string& message) {
  grid->failure = concat(thread.describe(), ", ", thread.now.describe(), ": ", message);
  if (!self) throw Failure(grid->failure);  // the scheduler's stack: something asynchronous
  // The fibre is abandoned: nothing on its stack is destroyed.
  self->fiber.switch_to(grid->main);
  __builtin_unreachable();
}

void wait_for(Thread::Wait wait, uint32_t object, uint32_t parity) {
  Thread& t = *self;
  t.wait = wait;
  t.wait_object = object;
  t.wait_parity = parity;
  t.warp->ready &= ~(1u << t.lane);
  // Its turn goes to the warp's next lane without the scheduler, which would only pass it on.
  Thread* const next = grid->take_lane(*t.warp);
  self = next;
  t.fiber.switch_to(next ? next->fiber : grid->main);
}

void wake(Thread& thread) {
  thread.wait = Thread::Wait::kNothing;
  thread.warp->ready |= 1u << thread.lane;
}

Instruction::Instruction(const char* name, Location at) {
  Thread& t = *self;
  // One by one: a whole one would be built on the stack, and copied before all of it is there.
  t.now.instruction = name;
  t.now.at = at;
  t.now.ordinary = false;
  t.in_emulator = true;
  if (!grid->preemption || !grid->random.one_in(grid->preemption)) return;
  t.warp->rank = grid->random.next();
  t.fiber.switch_to(grid->main);  // which ends the warp's turn
}

}  // namespace rapt::emulator
