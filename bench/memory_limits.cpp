#include "bench/memory_limits.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

namespace rapt::bench {
namespace {

constexpr int64_t kLine = 64;

uint64_t line(const std::byte* p) {
  return *reinterpret_cast<const uint64_t*>(p);
}

// Four sums, so that adding is not what takes time.
uint64_t read(const std::byte* p, int64_t bytes) {
  uint64_t sum[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLine <= bytes; i += 4 * kLine)
    for (int64_t j = 0; j < 4; j++) sum[j] += line(p + i + j * kLine);
  for (; i < bytes; i += kLine) sum[0] += line(p + i);
  return sum[0] + sum[1] + sum[2] + sum[3];
}

// The same, and of every line another one `ahead` bytes further along the runs.
uint64_t read_ahead(std::span<const Run> runs, int64_t ahead) {
  uint64_t sum = 0;
  size_t next = 0;
  int64_t at = ahead;
  for (const Run& run : runs)
    for (int64_t i = 0; i < run.bytes; i += kLine, at += kLine) {
      while (next < runs.size() && at >= runs[next].bytes) at -= runs[next++].bytes;
      if (next < runs.size()) __builtin_prefetch(runs[next].data + at);
      sum += line(run.data + i);
    }
  return sum;
}

// The runs in their order, cut into as many shares of the same number of lines.
std::vector<std::vector<Run>> equal_shares(std::span<const Run> runs, int32_t num_shares) {
  int64_t lines = 0;
  for (const Run& run : runs) lines += run.bytes / kLine;
  std::vector<std::vector<Run>> shares;
  size_t next = 0;
  int64_t done = 0;  // bytes of runs[next] that the shares before have
  for (int32_t i = 0; i < num_shares; i++) {
    int64_t bytes = (lines * (i + 1) / num_shares - lines * i / num_shares) * kLine;
    std::vector<Run>& share = shares.emplace_back();
    while (bytes > 0) {
      const int64_t part = std::min(bytes, runs[next].bytes - done);
      share.push_back({runs[next].data + done, part});
      bytes -= part;
      done += part;
      if (done == runs[next].bytes) {
        next++;
        done = 0;
      }
    }
  }
  return shares;
}

// Keeps the compiler from dropping the reads.
std::atomic<uint64_t> sink;

}  // namespace

double read_runs(Threads& threads, std::span<const Run> runs, int64_t prefetch_ahead) {
  const std::vector<std::vector<Run>> shares = equal_shares(runs, threads.size());
  return threads.run([&](int32_t i) {
    const std::vector<Run>& own = shares[static_cast<size_t>(i)];
    uint64_t sum = 0;
    if (prefetch_ahead > 0) {
      sum = read_ahead(own, prefetch_ahead);
    } else {
      for (const Run& run : own) sum += read(run.data, run.bytes);
    }
    sink.fetch_add(sum, std::memory_order_relaxed);
  });
}

double read_sequentially(Threads& threads, Run run) {
  const int64_t lines = run.bytes / kLine;
  return threads.run([&](int32_t i) {
    const int64_t begin = lines * i / threads.size(), end = lines * (i + 1) / threads.size();
    sink.fetch_add(read(run.data + begin * kLine, (end - begin) * kLine),
                   std::memory_order_relaxed);
  });
}

}  // namespace rapt::bench
