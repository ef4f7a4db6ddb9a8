// Runs a kernel's device text on this CPU, thread by thread, and fails where a GPU might go wrong.
//
//   emulator::Memory memory;
//   const std::span<float> out = memory.allocate<float>(1024, "out");
//   emulator::launch(memory, {.grid = {8}, .threads = 128, .shared_bytes = sizeof(device::Shared)},
//                    {.seed = 3}, [&] { device::my_kernel(out.data()); });
//
// The text is compiled by rapt_emulated_kernel() (cmake/RaptEmulator.cmake), in a source of its
// own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

#include "emulator/memory.hpp"

namespace rapt::emulator {

class StackPool;  // fiber.hpp

// A race, a deadlock, an access out of bounds or anything else that a GPU does not define. The
// message names thread, instruction and line; the same seed gives the same message.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct GridSize {
  uint32_t x = 1, y = 1, z = 1;  // blocks
};

struct Launch {
  GridSize grid;
  uint32_t threads = 32;      // per block; blocks are one-dimensional
  uint32_t shared_bytes = 0;  // dynamic shared memory per block
};

struct Options {
  // Of the schedule. 0: warps take turns and asynchronous copies land as late as they may. Others:
  // warps have random ranks, drawn anew at random instructions, and copies land late (seed % 3 =
  // 0), at random (1) or at once (2).
  uint64_t seed = 0;
  // Blocks that run at once; the others start in order as these end.
  uint32_t resident_blocks = 4;
  // Whether accesses must be ordered by barriers, fences and waits, whatever the values turn out to
  // be. Costs about half of the time.
  bool check_order = true;
  size_t stack_bytes = 64 << 10;  // per thread; unoptimised builds may need more
  // Of earlier launches, for later ones; null: this launch makes its own.
  StackPool* stacks = nullptr;
  // Of warps, without a block's end, before the launch counts as a livelock.
  uint64_t max_turns = 20'000'000;
  // 10 * major + minor; instructions of others fail. 0: none does.
  int32_t compute_capability = 0;
  // Where ordinary loads may go beside stacks, shared memory and allocations; empty: anywhere.
  std::vector<std::span<const char>> readable = {};
};

// Calls kernel() once in each thread. It may not throw. Throws Failure.
void launch(Memory& memory, const Launch& launch, const Options& options,
            const std::function<void()>& kernel);

}  // namespace rapt::emulator
