#include "jit/kernel_store.hpp"

#include <condition_variable>

#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

class KernelStoreTest : public testing::Test {
 protected:
  StoreOptions options() const { return counting_options(scratch_ / "cache", scratch_ / "log"); }
  int64_t num_builds() const { return count_lines(scratch_ / "log", "end"); }
  std::filesystem::path entry() const {
    return DiskCache(scratch_ / "cache")
        .path_of(cache_id(translation_unit(key_of(64), source_of()), "counting 1"));
  }
  std::filesystem::path pack_of(const KernelSource& source) const {
    PackWriter writer;
    const TranslationUnit unit = translation_unit(key_of(64), source);
    writer.add(unit, CountingCompiler::result_of(unit));
    writer.write(scratch_ / "core.rpk");
    return scratch_ / "core.rpk";
  }

  const ScratchFolder scratch_;
};

TEST_F(KernelStoreTest, a_kernel_is_built_once_then_in_memory_then_on_disk) {
  {
    KernelStore store(options());
    const auto first = store.get(key_of(64), source_of());
    expect_right(*first, key_of(64));
    EXPECT_EQ(store.get(key_of(64), source_of()), first);
    expect_right(*store.get(key_of(128), source_of()), key_of(128));
    EXPECT_EQ(store.counters().builds, 2);
    EXPECT_EQ(store.counters().memory_hits, 1);
    EXPECT_EQ(store.counters().disk_hits, 0);
  }
  KernelStore store(options());
  expect_right(*store.get(key_of(64), source_of()), key_of(64));
  EXPECT_EQ(store.counters().builds, 0);
  EXPECT_EQ(store.counters().disk_hits, 1);
  EXPECT_EQ(num_builds(), 2);
}

TEST_F(KernelStoreTest, builds_are_told_of_before_they_begin_and_nothing_else_is) {
  StoreOptions telling = options();
  std::vector<std::string> told;
  telling.on_build = [&](const std::string& key) {
    EXPECT_EQ(num_builds(), std::ssize(told));
    told.push_back(key);
  };
  for (int i = 0; i < 2; i++) {
    KernelStore store(telling);
    store.get(key_of(64), source_of());
    store.get(key_of(64), source_of());
    store.get(key_of(128), source_of());
  }
  EXPECT_THAT(told, testing::ElementsAre(key_of(64).text(), key_of(128).text()));
}

TEST_F(KernelStoreTest, another_text_or_compiler_is_another_entry) {
  KernelStore(options()).get(key_of(64), source_of());
  const KernelSource newer = source_of("extern \"C\" GLOBAL void attend() { /*new*/ }");
  expect_right(*KernelStore(options()).get(key_of(64), newer), key_of(64), newer);
  StoreOptions other = options();
  other.make_compiler = [this] {
    return std::make_unique<CountingCompiler>(scratch_ / "log", milliseconds(0), "counting 2");
  };
  KernelStore(other).get(key_of(64), source_of());
  EXPECT_EQ(num_builds(), 3);
}

TEST_F(KernelStoreTest, a_pack_comes_before_disk_and_compiler) {
  StoreOptions packed = options();
  packed.packs = {pack_of(source_of())};
  packed.make_compiler = []() -> std::unique_ptr<Compiler> {
    fail(ErrorCode::kInternal, "nobody needs a compiler here");
  };
  KernelStore store(packed);
  expect_right(*store.get(key_of(64), source_of()), key_of(64));
  EXPECT_EQ(store.counters().pack_hits, 1);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "cache"));
}

TEST_F(KernelStoreTest, a_stale_or_damaged_pack_is_passed_over_and_counted) {
  StoreOptions packed = options();
  packed.packs = {pack_of(source_of("extern \"C\" GLOBAL void attend() { /*old*/ }"))};
  KernelStore stale(packed);
  expect_right(*stale.get(key_of(64), source_of()), key_of(64));
  EXPECT_EQ(stale.counters().stale_in_packs, 1);
  EXPECT_EQ(stale.counters().builds, 1);
  std::string bytes = contents(pack_of(source_of()));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);  // in the image
  put(scratch_ / "core.rpk", bytes);
  KernelStore damaged(packed);
  expect_right(*damaged.get(key_of(64), source_of()), key_of(64));
  EXPECT_EQ(damaged.counters().damaged_in_packs, 1);
  EXPECT_EQ(damaged.counters().disk_hits, 1);
}

TEST_F(KernelStoreTest, a_damaged_entry_is_built_again_and_replaced) {
  KernelStore(options()).get(key_of(64), source_of());
  const std::string whole = contents(entry());
  int64_t expected_builds = 1;
  const auto replaced = [&](std::string_view bytes) {
    put(entry(), bytes);
    KernelStore store(options());
    expect_right(*store.get(key_of(64), source_of()), key_of(64));
    EXPECT_EQ(store.counters().damaged_on_disk, 1);
    EXPECT_EQ(num_builds(), ++expected_builds);
    EXPECT_EQ(contents(entry()), whole);
  };
  for (size_t i = 0; i < whole.size(); i += 41) {  // each region: head, hash, key, image
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    replaced(changed);
    replaced(whole.substr(0, i));
  }
}

TEST_F(KernelStoreTest, without_a_place_to_write_it_builds_and_says_why) {
  put(scratch_ / "cache", "a file where the folder should be");
  for (int round = 0; round < 2; round++) {
    KernelStore store(options());
    expect_right(*store.get(key_of(64), source_of()), key_of(64));
    EXPECT_EQ(store.counters().builds, 1);
    EXPECT_EQ(store.counters().failed_writes, 1);
    EXPECT_THAT(store.counters().last_failed_write, HasSubstr("Not a directory"));
  }
  StoreOptions without = options();
  without.cache_folder.clear();
  KernelStore store(without);
  expect_right(*store.get(key_of(64), source_of()), key_of(64));
  EXPECT_EQ(store.counters().failed_writes, 0);
}

TEST_F(KernelStoreTest, a_holder_that_never_ends_is_waited_for_so_long_and_no_longer) {
  const DiskCache cache(scratch_ / "cache");
  const CacheId id = cache_id(translation_unit(key_of(64), source_of()), "counting 1");
  const BuildLock held = cache.lock(id, milliseconds(0));
  ASSERT_TRUE(held.held());
  StoreOptions impatient = options();
  impatient.longest_wait = milliseconds(40);
  KernelStore store(impatient);
  expect_right(*store.get(key_of(64), source_of()), key_of(64));
  EXPECT_EQ(store.counters().waits, 1);
  EXPECT_EQ(store.counters().timeouts, 1);
  CompiledKernel kernel;
  EXPECT_EQ(cache.find(id, kernel), DiskCache::Answer::kFound);
}

// A build that goes on when four are under way: one after the other they would never be.
class Meeting : public CountingCompiler {
 public:
  explicit Meeting(const std::filesystem::path& log) : CountingCompiler(log) {}
  CompiledKernel compile(const TranslationUnit& unit) const override {
    std::unique_lock lock(mutex_);
    num_under_way_++;
    changed_.notify_all();
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return num_under_way_ == 4; }));
    return CountingCompiler::compile(unit);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int num_under_way_ = 0;
};

TEST_F(KernelStoreTest, threads_build_each_kernel_once_and_different_ones_side_by_side) {
  StoreOptions meeting = options();
  meeting.make_compiler = [this] { return std::make_unique<Meeting>(scratch_ / "log"); };
  KernelStore store(meeting);
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 12; i++)
    threads.emplace_back(
        [&, i] { expect_right(*store.get(key_of(i % 4), source_of()), key_of(i % 4)); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_builds(), 4);
  EXPECT_EQ(store.counters().builds, 4);
  EXPECT_EQ(store.counters().memory_hits, 8);
}

TEST_F(KernelStoreTest, without_a_compiler_the_kernel_and_the_library_are_named) {
  StoreOptions lacking = options();
  bool found = false;
  lacking.packs = {pack_of(source_of())};
  lacking.make_compiler = [&]() -> std::unique_ptr<Compiler> {
    if (found) return std::make_unique<CountingCompiler>(scratch_ / "log");
    return std::make_unique<Nvrtc>(std::vector<std::string>{"libnvrtc-gone.so.13"});
  };
  KernelStore store(lacking);
  const std::string text =
      error_of(ErrorCode::kMissingLibrary, [&] { store.get(key_of(128), source_of()); });
  EXPECT_THAT(text, AllOf(HasSubstr("kernel attend sm_90a head_dim=128 is in none of 1 packs"),
                          HasSubstr("could not load libnvrtc-gone.so.13"),
                          HasSubstr("nvidia-cuda-nvrtc"), HasSubstr("RAPT_NVRTC")));
  expect_right(*store.get(key_of(64), source_of()), key_of(64));  // from the pack
  found = true;
  expect_right(*store.get(key_of(128), source_of()), key_of(128));
}

TEST_F(KernelStoreTest, a_build_that_throws_leaves_nothing_and_can_be_tried_again) {
  class Failing : public CountingCompiler {
   public:
    Failing(const std::filesystem::path& log, bool& broken)
        : CountingCompiler(log), broken_(broken) {}
    CompiledKernel compile(const TranslationUnit& unit) const override {
      if (broken_) fail(ErrorCode::kInternal, "does not compile");
      return CountingCompiler::compile(unit);
    }
    bool& broken_;
  };
  bool broken = true;
  StoreOptions failing = options();
  failing.make_compiler = [&] { return std::make_unique<Failing>(scratch_ / "log", broken); };
  KernelStore store(failing);
  EXPECT_EQ(error_of(ErrorCode::kInternal, [&] { store.get(key_of(64), source_of()); }),
            "does not compile");
  EXPECT_FALSE(std::filesystem::exists(entry()));
  broken = false;
  expect_right(*store.get(key_of(64), source_of()), key_of(64));
}

TEST_F(KernelStoreTest, a_pack_that_cannot_be_read_is_an_error_at_once) {
  StoreOptions packed = options();
  packed.packs = {scratch_ / "gone.rpk"};
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { KernelStore{packed}; }), HasSubstr("gone.rpk"));
}

}  // namespace
}  // namespace rapt::jit
