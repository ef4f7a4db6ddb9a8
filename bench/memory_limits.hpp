// What this machine's memory gives, measured in the same run as what is compared with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bench/threads.hpp"

namespace rapt::bench {

// Bytes read one after the other: a whole number of 64-byte lines.
struct Run {
  const std::byte* data;
  int64_t bytes;
};

// Reads the runs in their order, each thread an equal part of them, one load a cache line. Returns
// seconds. With `prefetch_ahead` > 0 the lines that many bytes ahead in the order of the runs are
// prefetched.
double read_runs(Threads& threads, std::span<const Run> runs, int64_t prefetch_ahead = 0);

// Reads one run front to back, each thread an equal part of it. Returns seconds.
double read_sequentially(Threads& threads, Run run);

}  // namespace rapt::bench
