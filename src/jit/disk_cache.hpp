// Compiled kernels on the user's disk, one file each, shared by all processes.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "jit/build_lock.hpp"
#include "jit/compiled_kernel.hpp"
#include "jit/kernel_source.hpp"

namespace rapt::jit {

// RAPT_CACHE_DIR, else XDG_CACHE_HOME/rapt, else HOME/.cache/rapt; empty where none is set.
std::filesystem::path default_cache_folder();

// What an entry is an entry of: key, text, options and compiler. Its hash names the file.
struct CacheId {
  std::string text;
  Hash128 hash;
};
CacheId cache_id(const TranslationUnit& unit, const std::string& compiler_identity);

class DiskCache {
 public:
  // Made, with what is above it, when the first entry is stored.
  explicit DiskCache(std::filesystem::path folder);

  enum class Answer { kFound, kAbsent, kDamaged };
  // kDamaged: there is a file that is cut, changed, foreign or of another version.
  Answer find(const CacheId& id, CompiledKernel& kernel) const;
  // Replaces what is there. Where that fails (a full disk, a read-only folder): why. The kernel in
  // hand is as good as before.
  std::optional<std::string> store(const CacheId& id, const CompiledKernel& kernel) const;
  BuildLock lock(const CacheId& id, std::chrono::milliseconds longest) const;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path path_of(const CacheId& id) const;

 private:
  void remove_old_temporaries() const;

  std::filesystem::path folder_;
};

}  // namespace rapt::jit
