#include "jit/build_lock.hpp"

#include <sys/wait.h>

#include <csignal>

#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using std::chrono::milliseconds;

TEST(BuildLock, one_holds_a_key_and_others_wait_for_their_time) {
  const ScratchFolder folder;
  const Hash128 key{7, 1}, other{8, 1};
  {
    const BuildLock first(folder / "lock", key, milliseconds(0));
    EXPECT_TRUE(first.held());
    EXPECT_FALSE(first.waited());
    const auto begin = std::chrono::steady_clock::now();
    const BuildLock second(folder / "lock", key, milliseconds(30));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(30));
    EXPECT_TRUE(!second.held() && second.waited() && second.timed_out());
    EXPECT_TRUE(BuildLock(folder / "lock", other, milliseconds(0)).held());
  }
  EXPECT_TRUE(BuildLock(folder / "lock", key, milliseconds(0)).held());
}

TEST(BuildLock, who_waits_gets_it_when_it_is_given_back) {
  const ScratchFolder folder;
  auto first = std::make_unique<BuildLock>(folder / "lock", Hash128{7, 1}, milliseconds(0));
  bool second_held = false;
  std::thread waiter([&] {
    second_held = BuildLock(folder / "lock", Hash128{7, 1}, std::chrono::minutes(1)).held();
  });
  std::this_thread::sleep_for(milliseconds(20));
  first.reset();
  waiter.join();
  EXPECT_TRUE(second_held);
}

TEST(BuildLock, a_killed_holder_gives_it_back) {
  const ScratchFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    const BuildLock lock(folder / "lock", Hash128{7, 1}, milliseconds(0));
    put(folder / "holding", "");
    pause();
    _exit(0);
  }
  while (!std::filesystem::exists(folder / "holding")) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(BuildLock(folder / "lock", Hash128{7, 1}, milliseconds(0)).held());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(BuildLock(folder / "lock", Hash128{7, 1}, milliseconds(0)).held());
}

TEST(BuildLock, without_a_file_nobody_waits) {
  const ScratchFolder folder;
  const BuildLock lock(folder / "gone/lock", Hash128{7, 1}, std::chrono::minutes(1));
  EXPECT_FALSE(lock.held() || lock.waited() || lock.timed_out());
}

}  // namespace
}  // namespace rapt::jit
