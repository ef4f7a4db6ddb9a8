// One builder per kernel among all processes and threads that share a cache folder.
#pragma once

#include <chrono>
#include <filesystem>

#include "jit/hash.hpp"

namespace rapt::jit {

// Holds the byte `key` of a lock file (an open file description lock: released when its holder
// ends, however it ends). One file serves all keys, so nothing is left to clean up.
class BuildLock {
 public:
  // Waits while another holds it, at most `longest`. Where the file cannot be made or locked, or
  // the time is over, the lock is not held: building goes on, perhaps twice.
  BuildLock(const std::filesystem::path& file, const Hash128& key,
            std::chrono::milliseconds longest);
  ~BuildLock();
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

  bool held() const { return held_; }
  bool waited() const { return waited_; }
  bool timed_out() const { return timed_out_; }

 private:
  int descriptor_ = -1;
  bool held_ = false, waited_ = false, timed_out_ = false;
};

}  // namespace rapt::jit
