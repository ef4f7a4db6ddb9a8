// Many processes that start with one empty cache, as ranks of one job do.
#include <sys/wait.h>

#include <csignal>
#include <random>

#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using std::chrono::milliseconds;

// Of all processes the first to compile stays in it until it is killed.
class Stuck : public CountingCompiler {
 public:
  Stuck(const std::filesystem::path& log, std::filesystem::path victim)
      : CountingCompiler(log), victim_(std::move(victim)) {}
  CompiledKernel compile(const TranslationUnit& unit) const override {
    const int file = open(victim_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return CountingCompiler::compile(unit);
    const std::string line = concat(getpid(), "\n");
    if (::write(file, line.data(), line.size()) > 0)
      for (;;) pause();
    return {};
  }

 private:
  std::filesystem::path victim_;
};

constexpr int kProcesses = 8;
constexpr int64_t kKernels = 3;

class ProcessesTest : public testing::Test {
 protected:
  // A process that gets all kernels, each beginning with another. Ends with 0 when all are right.
  pid_t start(int rank, const StoreOptions& options) const {
    const pid_t child = fork();
    if (child != 0) return child;
    bool right = true;
    try {
      KernelStore store(options);
      for (int64_t i = 0; i < kKernels; i++) {
        const KernelKey key = key_of((rank + i) % kKernels);
        const auto kernel = store.get(key, source_of());
        right &=
            kernel->image == CountingCompiler::result_of(translation_unit(key, source_of())).image;
      }
      right &= store.counters().failed_writes == 0 && store.counters().timeouts == 0;
    } catch (const std::exception&) {
      right = false;
    }
    _exit(right ? 0 : 1);
  }

  StoreOptions options(milliseconds pause) const {
    return counting_options(scratch_ / "cache", scratch_ / "log", pause);
  }

  static bool ended_well(pid_t child) {
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  void expect_whole_cache() const {
    KernelStore store(counting_options(scratch_ / "cache", scratch_ / "log"));
    for (int64_t i = 0; i < kKernels; i++)
      expect_right(*store.get(key_of(i), source_of()), key_of(i));
    EXPECT_EQ(store.counters().disk_hits, kKernels);
    EXPECT_EQ(store.counters().builds, 0);
  }

  const ScratchFolder scratch_;
};

TEST_F(ProcessesTest, build_each_kernel_once) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < kProcesses; rank++)
    children.push_back(start(rank, options(milliseconds(50))));
  for (pid_t child : children) EXPECT_TRUE(ended_well(child));
  EXPECT_EQ(count_lines(scratch_ / "log", "end"), kKernels);
  expect_whole_cache();
}

TEST_F(ProcessesTest, one_killed_in_the_middle_of_a_build_is_replaced) {
  std::vector<pid_t> children;
  StoreOptions stuck = options({});
  stuck.make_compiler = [log = scratch_ / "log", victim = scratch_ / "victim"] {
    return std::make_unique<Stuck>(log, victim);
  };
  for (int rank = 0; rank < kProcesses; rank++) children.push_back(start(rank, stuck));
  pid_t victim = 0;
  while (victim == 0) {
    std::this_thread::sleep_for(milliseconds(1));
    std::ifstream(scratch_ / "victim") >> victim;
  }
  ASSERT_THAT(children, testing::Contains(victim));
  kill(victim, SIGKILL);
  for (pid_t child : children) EXPECT_EQ(ended_well(child), child != victim);
  // Another built what it had begun, and every kernel once.
  EXPECT_EQ(count_lines(scratch_ / "log", "end"), kKernels);
  expect_whole_cache();
}

// Wherever a kill falls: in a build, a write, a rename.
TEST_F(ProcessesTest, kills_at_any_time_leave_a_cache_that_works) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; round++) {
    std::filesystem::remove_all(scratch_ / "cache");
    std::vector<pid_t> children;
    for (int rank = 0; rank < 3; rank++) children.push_back(start(rank, options(milliseconds(1))));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));
    kill(children[0], SIGKILL);
    ended_well(children[0]);
    for (int rank : {1, 2}) EXPECT_TRUE(ended_well(children[static_cast<size_t>(rank)])) << round;
    expect_whole_cache();
  }
}

}  // namespace
}  // namespace rapt::jit
