// The scheduler, after probabilistic concurrency testing: whatever is ready and ranks highest runs;
// ranks are drawn anew at random instructions. How often is itself a matter of the seed, since some
// faults need many switches and some need a warp that runs far ahead.
#include <csignal>

#include "core/check.hpp"
#include "emulator/machine.hpp"
#include "emulator/mbarrier.hpp"
#include "emulator/tensor_copy.hpp"

namespace rapt::emulator {

namespace {

// A fault in device text: which thread, and near which allocation.
void on_memory_fault(int, siginfo_t* info, void*) {
  if (self) self->in_emulator = true;
  const std::string where = grid->memory.describe(info->si_addr);
  grid->failure = concat(self ? concat(self->describe(), ", ", self->now.describe()) : "scheduler",
                         ": memory fault at ", where);
  siglongjmp(grid->recover, 1);
}

// Handles faults on a stack of its own, since a thread's may be what overflowed.
class FaultHandler {
 public:
  FaultHandler() : stack_(SIGSTKSZ + kMessageBytes) {
    stack_t stack = {};
    stack.ss_sp = stack_.data();
    stack.ss_size = stack_.size();
    sigaltstack(&stack, &old_stack_);
    struct sigaction action = {};
    action.sa_sigaction = on_memory_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &old_segv_);
    sigaction(SIGBUS, &action, &old_bus_);
  }
  ~FaultHandler() {
    sigaction(SIGSEGV, &old_segv_, nullptr);
    sigaction(SIGBUS, &old_bus_, nullptr);
    sigaltstack(&old_stack_, nullptr);
  }

 private:
  static constexpr size_t kMessageBytes = 64 << 10;
  std::vector<char> stack_;
  stack_t old_stack_;
  struct sigaction old_segv_, old_bus_;
};

std::string describe_wait(const Thread& t) {
  if (t.wait == Thread::Wait::kBarrier) {
    const NamedBarrier& barrier = t.block->barriers[t.wait_object];
    return concat("barrier ", t.wait_object, " (", barrier.arrived, " of ", barrier.expected,
                  " threads there)");
  }
  if (t.wait == Thread::Wait::kMbarrier)
    return concat("the phase of parity ", t.wait_parity, " of the mbarrier at byte ",
                  t.wait_object - kSharedBase, ": ", describe_mbarrier(*t.block, t.wait_object));
  const Meeting& meeting = t.warp->meetings[t.wait_object];
  std::string missing;
  for (int lane = 0; lane < kLanes; ++lane)
    if (~meeting.arrived >> lane & 1) missing += concat(" ", lane);
  return concat("lanes", missing);
}

}  // namespace

Grid::Grid(Memory& of_memory, const Launch& of_shape, const Options& with,
           const std::function<void()>& of_kernel)
    : memory(of_memory),
      shape(of_shape),
      options(with),
      kernel(of_kernel),
      random{with.seed},
      stack_pool(with.stacks ? *with.stacks : own_stacks) {
  if (!options.seed) return;
  constexpr Asynchrony kBySeed[] = {Asynchrony::kLate, Asynchrony::kMixed, Asynchrony::kEarly};
  asynchrony = kBySeed[options.seed % 3];
  constexpr uint32_t kPreemptions[] = {0, 300, 60, 10};
  preemption = kPreemptions[random.next() % 4];
}

bool Grid::happens_early() {
  return asynchrony == Asynchrony::kEarly || (asynchrony == Asynchrony::kMixed && random.one_in(2));
}

uint64_t Grid::operation_rank() {
  if (asynchrony == Asynchrony::kEarly) return ~0ull;
  return asynchrony == Asynchrony::kLate || random.one_in(2) ? 0 : random.next();
}

void Grid::admit_blocks() {
  const GridSize& size = shape.grid;
  while (next_block < size.x * size.y * size.z && resident.size() < options.resident_blocks) {
    const uint32_t n = next_block++;
    const BlockIndex at{n % size.x, n / size.x % size.y, n / size.x / size.y};
    resident.push_back(std::make_unique<Block>(*this, at, n));
  }
}

Thread* Grid::take_lane(Warp& warp) {
  if (!lanes_to_run) return nullptr;
  const int lane = __builtin_ctz(lanes_to_run);
  lanes_to_run &= lanes_to_run - 1;
  return &warp.lanes[lane];
}

void Grid::run_warp(Warp& warp) {
  lanes_to_run = warp.ready;
  self = take_lane(warp);
  main.switch_to(self->fiber);
  self = nullptr;
  if (!failure.empty()) throw Failure(failure);
  if (++turn - end_turn > options.max_turns)
    throw Failure(concat("livelock: after ", turn - end_turn, " turns of warps no end is near"));
  if (!options.seed) warp.rank = ~turn;  // the others' turn
}

// Runs the ready warp or the asynchronous operation that ranks highest; false if there is none.
bool Grid::step() {
  Warp* warp = nullptr;
  Block* block = nullptr;  // with the operation
  size_t operation = 0;
  for (const auto& b : resident)
    for (Warp& w : b->warps)
      if (w.ready && (!warp || w.rank > warp->rank)) warp = &w;
  const auto rank = [&] { return block ? block->operations[operation]->rank : warp->rank; };
  for (const auto& b : resident)
    for (size_t i = 0; i < b->operations.size(); ++i)
      if ((!warp && !block) || b->operations[i]->rank > rank()) {
        block = b.get();
        operation = i;
      }
  if (block) {
    if (block->operations[operation]->step())
      block->operations.erase(block->operations.begin() + static_cast<ptrdiff_t>(operation));
    return true;
  }
  if (warp) run_warp(*warp);
  return warp != nullptr;
}

void Grid::report_deadlock() const {
  std::string text = "deadlock:";
  for (const auto& block : resident)
    for (const Warp& warp : block->warps)
      for (int lane = 0; lane < kLanes; ++lane) {
        if (!(warp.live >> lane & 1)) continue;
        const Thread& t = warp.lanes[lane];
        // Neighbours that wait for the same in the same line are reported together.
        int last = lane;
        while (last + 1 < kLanes && warp.live >> (last + 1) & 1 &&
               warp.lanes[last + 1].wait == t.wait &&
               warp.lanes[last + 1].wait_object == t.wait_object &&
               warp.lanes[last + 1].wait_parity == t.wait_parity &&
               warp.lanes[last + 1].now.at == t.now.at)
          ++last;
        text += concat("\n  ", t.describe(), last > lane ? concat(" to ", last) : "", ", ",
                       t.now.describe(), ", waits for ", describe_wait(t));
        lane = last;
      }
  throw Failure(text);
}

void Grid::run() {
  FaultHandler handler;
  if (sigsetjmp(recover, 1)) {
    self = nullptr;
    throw Failure(failure);
  }
  for (admit_blocks(); !resident.empty(); admit_blocks()) {
    if (!step()) report_deadlock();
    std::erase_if(resident, [this](const auto& block) {
      if (block->live != 0) return false;
      finish_tensor_stores(*block);
      end_turn = turn;
      return true;
    });
  }
}

void launch(Memory& memory, const Launch& shape, const Options& options,
            const std::function<void()>& kernel) {
  check(shape.threads >= 1 && shape.threads <= 1024, "threads is ", shape.threads,
        ", must be 1 to 1024");
  check(shape.grid.x && shape.grid.y && shape.grid.z, "a grid has a size of 0");
  check(options.resident_blocks >= 1, "resident_blocks is 0, must be at least 1");
  check(!grid, "a kernel launches another");
  const auto running = std::make_unique<Grid>(memory, shape, options, kernel);
  struct Current {
    explicit Current(Grid* g) { grid = g; }
    ~Current() { grid = nullptr; }
  } current(running.get());
  running->run();
}

}  // namespace rapt::emulator
