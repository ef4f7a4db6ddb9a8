// From a key to compiled code: memory, packs, the disk cache, and the compiler, in this order.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/disk_cache.hpp"
#include "jit/nvrtc.hpp"
#include "jit/pack.hpp"

namespace rapt::jit {

// Where kernels came from since the store was made.
struct StoreCounters {
  int64_t memory_hits = 0, pack_hits = 0, disk_hits = 0, builds = 0;
  int64_t stale_in_packs = 0, damaged_in_packs = 0;  // looked up and passed over
  int64_t damaged_on_disk = 0;                       // found so, and built again
  int64_t waits = 0, timeouts = 0;  // for another process's build; those that took too long
  int64_t failed_writes = 0;        // of entries, which the disk cache then lacks
  std::string last_failed_write;    // why
};

struct StoreOptions {
  std::vector<std::filesystem::path> packs;  // asked in their order
  // Empty: nothing is kept on the disk.
  std::filesystem::path cache_folder = default_cache_folder();
  // How long another process may build a kernel before this one does too.
  std::chrono::milliseconds longest_wait = std::chrono::minutes(1);
  // Called at the first kernel that no pack has; one that throws is called again at the next.
  std::function<std::unique_ptr<Compiler>()> make_compiler = [] {
    return std::make_unique<Nvrtc>();
  };
  // Called before a kernel is built, which takes seconds, by the thread that builds it, with the
  // text of its key; empty: nobody is told.
  std::function<void(const std::string& key)> on_build;
};

class KernelStore {
 public:
  // Opens the packs: throws Error(kIo) for one that cannot be read.
  explicit KernelStore(StoreOptions options = {});

  // The kernel's code; any number of threads at once, which build different kernels side by side
  // and wait for each other's builds of the same. Throws what the compiler throws, and
  // Error(kMissingLibrary) that names the kernel where there is none; a later call tries again.
  std::shared_ptr<const CompiledKernel> get(const KernelKey& key, const KernelSource& source);

  StoreCounters counters() const;

 private:
  struct Slot {
    std::mutex building;
    std::shared_ptr<const CompiledKernel> kernel;
  };

  Slot& slot(const std::string& key);
  bool find_in_packs(const TranslationUnit& unit, CompiledKernel& kernel);
  DiskCache::Answer find_on_disk(const CacheId& id, CompiledKernel& kernel);
  CompiledKernel find_or_build(const TranslationUnit& unit);
  CompiledKernel build(const TranslationUnit& unit, const Compiler& compiler);
  const Compiler& compiler_for(const TranslationUnit& unit);
  void count(int64_t StoreCounters::*counter);

  StoreOptions options_;
  std::vector<std::unique_ptr<Pack>> packs_;
  std::optional<DiskCache> disk_;
  mutable std::mutex mutex_;                                      // of what follows
  std::unordered_map<std::string, std::unique_ptr<Slot>> slots_;  // by the key's text
  std::unique_ptr<Compiler> compiler_;
  StoreCounters counters_;
};

}  // namespace rapt::jit
