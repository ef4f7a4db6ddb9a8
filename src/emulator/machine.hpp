// What runs: a grid of blocks, warps and threads. A thread is a fibre; it gives up the core only
// inside an emulated instruction, so a run is a function of kernel, inputs and seed.
//
// Waiting is a state of the thread; whoever ends the wait calls wake(). How threads wait for each
// other is in meeting.hpp (lanes of a warp) and barrier.cpp (threads of a block).
#pragma once

#include <csetjmp>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/clock.hpp"
#include "emulator/fiber.hpp"
#include "emulator/global_shadow.hpp"
#include "emulator/launch.hpp"
#include "emulator/random.hpp"
#include "emulator/shadow.hpp"

namespace rapt::emulator {

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = 0xFFFFFFFF;
// Address of the first byte of dynamic shared memory; what is below belongs to the system.
constexpr uint32_t kSharedBase = 1024;
constexpr uint32_t kNamedBarriers = 16;

struct Block;
struct Grid;
struct Matrices;      // multiply.cpp
struct ProductQueue;  // warpgroup.hpp
struct StoreQueue;    // tensor_store.cpp
struct Warp;

struct BlockIndex {
  uint32_t x, y, z;
};

// An asynchronous copy that has not landed: 16 bytes, of which `bytes` come from global memory.
struct Copy {
  uint32_t shared;
  const void* global;
  uint32_t bytes;
  uint32_t group;  // of the thread's groups of copies, from 1
  Origin origin;
  ClockRef known;              // by the thread when it issued the copy
  uint32_t time, groups_over;  // the thread's, then
};

struct Thread {
  Fiber fiber;
  Block* block;
  Warp* warp;
  uint32_t index, lane;  // in the block, in the warp
  const char *stack, *stack_end;

  enum class Wait : uint8_t { kNothing, kMeeting, kBarrier, kMbarrier, kExited };
  Wait wait = Wait::kNothing;
  uint32_t wait_object = 0;  // which of the warp's meetings, of the block's barriers; an address
  uint32_t wait_parity = 0;  // of an mbarrier's phase

  Origin now;  // the last emulated instruction
  // Whether the emulator runs, not device text. Functions that both use, such as the standard
  // library's, may be linked in their instrumented form, and then call the hooks (instrument.cpp).
  bool in_emulator = false;

  ClockRef known;            // what others did that is over, as far as this thread knows
  uint32_t time = 1;         // of this thread's own accesses
  uint32_t groups_over = 0;  // its groups of copies up to this one are over
  uint32_t fenced_time = 0, fenced_groups = 0;  // the same at its last fence_async_shared()
  // What its last fence_device() made known to those who see a later atomic of this thread, and
  // what it will know at its next one from the atomics it did.
  std::shared_ptr<const BlockTimes> published, observed;

  std::deque<Copy> copies;  // that have not landed
  uint32_t groups_committed = 0;
  uint32_t last_copy_group = 0;  // of the last copy issued
  Origin last_copy;

  std::shared_ptr<StoreQueue> stores;  // of tensors; null until the first

  std::string describe() const;
};

// What a lane brings to a meeting: a number, or its operands, which the lane that acts for all
// reads.
union Brought {
  uint64_t number;
  const void* operands;
};

// All lanes come together: each brings a value and sees all of them.
struct Meeting {
  uint32_t arrived = 0, unread = 0;  // lanes
  Origin what;
  Brought values[kLanes];
};

struct Warp {
  Block* block;
  uint32_t index;
  Thread* lanes;
  uint32_t live, ready;  // lanes
  uint64_t rank = 0;     // higher runs first
  // While some lanes have yet to read the values of one, others may come to the next.
  Meeting meetings[2];
  // Its part of a warpgroup's products; null until the first.
  std::shared_ptr<ProductQueue> products;
  // The last clocks that a lane learned from a barrier, of an asynchronous agent and by a proxy
  // fence: lanes that learn the same share the result.
  struct {
    ClockRef from, with, to;
  } learned;
  struct {
    ClockRef from, to;
    uint32_t agent, time;
  } learned_of_agent;
  struct {
    ClockRef from, to;
  } learned_of_fence;
};

struct NamedBarrier {
  uint32_t expected = 0, arrived = 0;  // threads; expected is set by the first
  std::vector<bool> who;               // by thread, in this phase
  std::vector<Origin> from;            // by warp: where its first lane arrived in this phase
  ClockBuilder clock;
};

// What the hardware does on its own: a tensor load. It happens when the scheduler wants it to.
struct AsyncOperation {
  uint64_t rank = 0;  // higher runs first, among warps too
  virtual ~AsyncOperation() = default;
  // Does a part and says whether all is done.
  virtual bool step() = 0;
  virtual std::string describe() const = 0;
};

// What the arrivals of an mbarrier's phase know together, of this phase and of the last complete
// one.
struct MbarrierClock {
  ClockBuilder pending;
  ClockRef done;
};

struct Block {
  Block(Grid& grid, BlockIndex index, uint32_t number);
  ~Block();

  Grid& grid;
  BlockIndex index;
  uint32_t number;  // in the grid, x fastest
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  uint32_t live;  // threads
  std::unique_ptr<Stacks> stacks;
  Mapping shared_pages;
  char* shared;  // the byte at address kSharedBase
  SharedShadow shadow;
  NamedBarrier barriers[kNamedBarriers];
  std::unordered_map<uint32_t, MbarrierClock> mbarrier_clocks;  // by address
  std::vector<std::unique_ptr<AsyncOperation>> operations;      // in flight
  ClockRef nothing_known;
  std::vector<uint32_t> load_times;  // of the agents that tensor loads take in turn

  // Agents of clocks: the threads; their copies, whose times are their groups; the warps' products
  // and tensor stores; tensor loads.
  static constexpr uint32_t kLoadAgents = 32;
  uint32_t num_threads() const { return static_cast<uint32_t>(threads.size()); }
  uint32_t num_warps() const { return static_cast<uint32_t>(warps.size()); }
  uint32_t copy_agent(const Thread& t) const { return num_threads() + t.index; }
  uint32_t product_agent(const Warp& w) const { return 2 * num_threads() + w.index; }
  uint32_t store_agent(const Warp& w) const { return 2 * num_threads() + num_warps() + w.index; }
  uint32_t load_agent(uint32_t i) const { return 2 * num_threads() + 2 * num_warps() + i; }
  uint32_t num_agents() const { return load_agent(kLoadAgents); }
  std::string describe_agent(uint32_t agent) const;
};

struct Grid {
  Grid(Memory& memory, const Launch& shape, const Options& options,
       const std::function<void()>& kernel);
  // Runs all blocks to their ends.
  void run();
  // Whether something asynchronous should happen now rather than later, and the rank of what the
  // scheduler does.
  bool happens_early();
  // The next lane of the running warp's turn; null: the turn is over.
  Thread* take_lane(Warp& warp);
  uint64_t operation_rank();

  Memory& memory;
  Launch shape;
  Options options;
  const std::function<void()>& kernel;
  Random random;
  enum class Asynchrony { kLate, kMixed, kEarly } asynchrony = Asynchrony::kLate;
  uint32_t preemption = 0;    // one instruction in so many gives up the core; 0: none does
  uint32_t lanes_to_run = 0;  // of the running warp, in this turn
  uint64_t turn = 0;
  uint64_t end_turn = 0;  // when a block last ended

  StackPool own_stacks;
  StackPool& stack_pool;
  std::vector<std::unique_ptr<Block>> resident;
  uint32_t next_block = 0;
  GlobalShadow global_shadow;
  // What was published at each word that atomics accessed.
  std::unordered_map<const void*, std::shared_ptr<const BlockTimes>> published;

  // Of a product, too large for a thread's stack; null until the first.
  std::shared_ptr<Matrices> matrices;

  Fiber main;           // the scheduler's
  std::string failure;  // of the thread that just ran
  sigjmp_buf recover;   // from a memory fault

 private:
  void admit_blocks();
  bool step();
  void run_warp(Warp& warp);
  [[noreturn]] void report_deadlock() const;
};

// Device text has no parameter for these: the running thread, null on the scheduler's stack, and
// its grid.
inline thread_local constinit Thread* self = nullptr;
inline thread_local constinit Grid* grid = nullptr;

// Ends the launch: the message says that it happened to `thread` in its current instruction.
[[noreturn]] void fail_in(const Thread& thread, const std::string& message);

// Suspends the running thread until wake(). Every lane of its warp may run first.
void wait_for(Thread::Wait wait, uint32_t object, uint32_t parity = 0);
void wake(Thread& thread);

// Fails unless the running instruction is one of the capability that the kernel is for.
inline void require_capability(int32_t first, int32_t last = INT32_MAX) {
  const int32_t its = grid->options.compute_capability;
  if (its && (its < first || its > last)) [[unlikely]]
    fail_in(*self, "is no instruction of sm_" + std::to_string(its));
}

// Every emulated instruction starts with one of these: a chance for another warp to run.
class Instruction {
 public:
  Instruction(const char* name, Location at);
  ~Instruction() { self->in_emulator = false; }
  Instruction(const Instruction&) = delete;
  Instruction& operator=(const Instruction&) = delete;
};

}  // namespace rapt::emulator
