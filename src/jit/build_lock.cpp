#include "jit/build_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace rapt::jit {

BuildLock::BuildLock(const std::filesystem::path& file, const Hash128& key,
                     std::chrono::milliseconds longest) {
  using std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kFirstNap{1}, kLongestNap{20};
  constexpr uint64_t kOffsets = (uint64_t{1} << 62) - 1;
  constexpr mode_t kOwner = 0600;
  descriptor_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kOwner);
  if (descriptor_ < 0) return;
  struct flock range = {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(key.low & kOffsets);
  range.l_len = 1;
  // There is no waiting with a time limit but by asking again.
  const auto deadline = steady_clock::now() + longest;
  for (auto nap = kFirstNap;; nap = std::min(2 * nap, kLongestNap)) {
    held_ = fcntl(descriptor_, F_OFD_SETLK, &range) == 0;
    if (held_ || (errno != EAGAIN && errno != EACCES && errno != EINTR)) return;
    waited_ = true;
    timed_out_ = steady_clock::now() >= deadline;
    if (timed_out_) return;
    std::this_thread::sleep_for(nap);
  }
}

BuildLock::~BuildLock() {
  if (descriptor_ >= 0) close(descriptor_);  // which releases it
}

}  // namespace rapt::jit
