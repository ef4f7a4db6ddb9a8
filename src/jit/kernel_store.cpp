#include "jit/kernel_store.hpp"

#include <utility>

#include "core/check.hpp"

namespace rapt::jit {

KernelStore::KernelStore(StoreOptions options) : options_(std::move(options)) {
  for (const std::filesystem::path& path : options_.packs)
    packs_.push_back(std::make_unique<Pack>(path));
  if (!options_.cache_folder.empty()) disk_.emplace(options_.cache_folder);
}

KernelStore::Slot& KernelStore::slot(const std::string& key) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Slot>& slot = slots_[key];
  if (!slot) slot = std::make_unique<Slot>();
  return *slot;
}

void KernelStore::count(int64_t StoreCounters::*counter) {
  const std::lock_guard lock(mutex_);
  counters_.*counter += 1;
}

StoreCounters KernelStore::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::shared_ptr<const CompiledKernel> KernelStore::get(const KernelKey& key,
                                                       const KernelSource& source) {
  Slot& mine = slot(key.text());
  const std::lock_guard lock(mine.building);
  if (mine.kernel) {
    count(&StoreCounters::memory_hits);
    return mine.kernel;
  }
  const TranslationUnit unit = translation_unit(key, source);
  CompiledKernel kernel;
  if (!find_in_packs(unit, kernel)) kernel = find_or_build(unit);
  mine.kernel = std::make_shared<const CompiledKernel>(std::move(kernel));
  return mine.kernel;
}

bool KernelStore::find_in_packs(const TranslationUnit& unit, CompiledKernel& kernel) {
  for (const std::unique_ptr<Pack>& pack : packs_) {
    switch (pack->find(unit, kernel)) {
      case Pack::Answer::kFound:
        count(&StoreCounters::pack_hits);
        return true;
      case Pack::Answer::kStale:
        count(&StoreCounters::stale_in_packs);
        break;
      case Pack::Answer::kDamaged:
        count(&StoreCounters::damaged_in_packs);
        break;
      case Pack::Answer::kAbsent:
        break;
    }
  }
  return false;
}

DiskCache::Answer KernelStore::find_on_disk(const CacheId& id, CompiledKernel& kernel) {
  const DiskCache::Answer answer = disk_->find(id, kernel);
  if (answer == DiskCache::Answer::kFound) count(&StoreCounters::disk_hits);
  return answer;
}

CompiledKernel KernelStore::find_or_build(const TranslationUnit& unit) {
  // Needed for the name of the entry, too.
  const Compiler& compiler = compiler_for(unit);
  if (!disk_) return build(unit, compiler);
  const CacheId id = cache_id(unit, compiler.identity());
  CompiledKernel kernel;
  if (find_on_disk(id, kernel) == DiskCache::Answer::kFound) return kernel;
  const BuildLock lock = disk_->lock(id, options_.longest_wait);
  if (lock.waited()) count(&StoreCounters::waits);
  if (lock.timed_out()) count(&StoreCounters::timeouts);
  // Again: who held the lock has built it.
  const DiskCache::Answer answer = find_on_disk(id, kernel);
  if (answer == DiskCache::Answer::kFound) return kernel;
  if (answer == DiskCache::Answer::kDamaged) count(&StoreCounters::damaged_on_disk);
  kernel = build(unit, compiler);
  if (std::optional<std::string> why = disk_->store(id, kernel)) {
    const std::lock_guard counting(mutex_);
    counters_.failed_writes += 1;
    counters_.last_failed_write = *std::move(why);
  }
  return kernel;
}

CompiledKernel KernelStore::build(const TranslationUnit& unit, const Compiler& compiler) {
  if (options_.on_build) options_.on_build(unit.key);
  CompiledKernel kernel = compiler.compile(unit);
  count(&StoreCounters::builds);
  return kernel;
}

const Compiler& KernelStore::compiler_for(const TranslationUnit& unit) {
  const std::lock_guard lock(mutex_);
  if (compiler_) return *compiler_;
  try {
    compiler_ = options_.make_compiler();
  } catch (const Error& error) {
    fail(error.code(), "kernel ", unit.key, " is in ",
         packs_.empty() ? "no pack" : concat("none of ", packs_.size(), " packs"), ", and ",
         error.what());
  }
  return *compiler_;
}

}  // namespace rapt::jit
