#include "jit/disk_cache.hpp"

#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>

#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

const TranslationUnit kUnit = translation_unit(key_of(64), source_of());
const CompiledKernel kKernel = CountingCompiler::result_of(kUnit);
const CacheId kId = cache_id(kUnit, "compiler 1");

class DiskCacheTest : public testing::Test {
 protected:
  // What the cache answers with these bytes in the entry's place.
  DiskCache::Answer answer_to(std::string_view bytes) {
    put(cache_.path_of(kId), bytes);
    return cache_.find(kId, found_);
  }

  const ScratchFolder scratch_;
  const DiskCache cache_{scratch_ / "some/where"};
  CompiledKernel found_;
};

TEST_F(DiskCacheTest, an_entry_is_found_as_it_was_stored) {
  EXPECT_EQ(cache_.find(kId, found_), DiskCache::Answer::kAbsent);
  ASSERT_EQ(cache_.store(kId, kKernel), std::nullopt);
  ASSERT_EQ(cache_.find(kId, found_), DiskCache::Answer::kFound);
  EXPECT_EQ(found_.image, kKernel.image);
  EXPECT_EQ(found_.resources, kKernel.resources);
  EXPECT_EQ(cache_.path_of(kId).filename().string(), kId.hash.hex() + ".kernel");
  EXPECT_EQ(cache_id(kUnit, "compiler 1").hash, kId.hash);
  EXPECT_NE(cache_id(kUnit, "compiler 2").hash, kId.hash);
  EXPECT_NE(cache_id(translation_unit(key_of(65), source_of()), "compiler 1").hash, kId.hash);
}

TEST_F(DiskCacheTest, every_changed_byte_is_found_damaged) {
  ASSERT_EQ(cache_.store(kId, kKernel), std::nullopt);
  const std::string whole = contents(cache_.path_of(kId));
  ASSERT_GT(whole.size(), kKernel.image.size());
  for (size_t i = 0; i < whole.size(); i++) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    EXPECT_EQ(answer_to(changed), DiskCache::Answer::kDamaged) << "byte " << i;
  }
  EXPECT_EQ(found_.image, "");  // none of it leaves
  EXPECT_EQ(answer_to(whole), DiskCache::Answer::kFound);
}

TEST_F(DiskCacheTest, every_cut_and_every_appendix_is_found_damaged) {
  ASSERT_EQ(cache_.store(kId, kKernel), std::nullopt);
  const std::string whole = contents(cache_.path_of(kId));
  for (size_t length = 0; length < whole.size(); length++)
    EXPECT_EQ(answer_to(whole.substr(0, length)), DiskCache::Answer::kDamaged) << length;
  EXPECT_EQ(answer_to(whole + '\0'), DiskCache::Answer::kDamaged);
  EXPECT_EQ(answer_to(whole + whole), DiskCache::Answer::kDamaged);
}

TEST_F(DiskCacheTest, a_sound_entry_of_something_else_is_found_damaged) {
  const CacheId other = cache_id(kUnit, "compiler 2");
  ASSERT_EQ(cache_.store(other, kKernel), std::nullopt);
  EXPECT_EQ(answer_to(contents(cache_.path_of(other))), DiskCache::Answer::kDamaged);
  EXPECT_EQ(answer_to("#!/bin/sh\necho nothing of ours\n"), DiskCache::Answer::kDamaged);
}

// Magic 8 bytes, version 4, payload's length 8, hash 16, payload.
TEST_F(DiskCacheTest, a_sound_entry_of_another_version_is_found_damaged) {
  ASSERT_EQ(cache_.store(kId, kKernel), std::nullopt);
  std::string bytes = contents(cache_.path_of(kId));
  const auto reseal = [&] {
    ByteWriter hash;
    hash.hash(hash_of(bytes.substr(0, 20) + bytes.substr(36)));
    bytes.replace(20, 16, hash.written());
  };
  reseal();
  EXPECT_EQ(answer_to(bytes), DiskCache::Answer::kFound);  // so it is sealed as the cache does
  for (int version : {0, 2}) {
    bytes[8] = static_cast<char>(version);
    reseal();
    EXPECT_EQ(answer_to(bytes), DiskCache::Answer::kDamaged) << version;
  }
}

TEST_F(DiskCacheTest, a_folder_in_an_entrys_place_is_damage_that_a_write_reports) {
  std::filesystem::create_directories(cache_.path_of(kId) / "inside");
  EXPECT_EQ(cache_.find(kId, found_), DiskCache::Answer::kDamaged);
  EXPECT_THAT(cache_.store(kId, kKernel).value_or(""), HasSubstr("renaming "));
}

TEST_F(DiskCacheTest, a_folder_that_cannot_be_made_is_reported) {
  put(scratch_ / "file", "");
  const DiskCache cache(scratch_ / "file/cache");
  EXPECT_EQ(cache.find(kId, found_), DiskCache::Answer::kAbsent);
  EXPECT_THAT(cache.store(kId, kKernel).value_or(""),
              AllOf(HasSubstr("creating "), HasSubstr("Not a directory")));
  EXPECT_FALSE(cache.lock(kId, std::chrono::minutes(1)).held());
}

TEST_F(DiskCacheTest, a_read_only_folder_is_read_and_its_writes_are_reported) {
  ASSERT_EQ(cache_.store(kId, kKernel), std::nullopt);
  std::filesystem::permissions(cache_.path_of(kId), std::filesystem::perms(0644));
  std::filesystem::permissions(cache_.folder(), std::filesystem::perms(0555));
  // The superuser may write everywhere.
  const uid_t before = geteuid();
  if (before == 0) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const DiskCache::Answer answer = cache_.find(kId, found_);
  const std::optional<std::string> why = cache_.store(cache_id(kUnit, "compiler 2"), kKernel);
  const bool locked = cache_.lock(kId, std::chrono::minutes(1)).held();
  if (before == 0) {
    ASSERT_EQ(seteuid(0), 0);
  }
  std::filesystem::permissions(cache_.folder(), std::filesystem::perms(0755));
  EXPECT_EQ(answer, DiskCache::Answer::kFound);
  EXPECT_THAT(why.value_or(""), AllOf(HasSubstr("creating "), HasSubstr("Permission denied")));
  EXPECT_FALSE(locked);
}

// A file system with no room for the image; where this process may not mount one, a limit on the
// size of files, which fails the same write.
class FullDisk {
 public:
  explicit FullDisk(const std::filesystem::path& folder) : folder_(folder) {
    std::filesystem::create_directories(folder);
    mounted_ = mount("rapt", folder.c_str(), "tmpfs", 0, "size=8k") == 0;
    if (mounted_) return;
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &small);
    std::signal(SIGXFSZ, SIG_IGN);
  }
  ~FullDisk() {
    if (mounted_) {
      umount(folder_.c_str());
    } else {
      setrlimit(RLIMIT_FSIZE, &before_);
      std::signal(SIGXFSZ, SIG_DFL);
    }
  }

 private:
  std::filesystem::path folder_;
  bool mounted_ = false;
  rlimit before_ = {};
};

TEST_F(DiskCacheTest, a_full_disk_is_reported_and_keeps_no_half_entry) {
  CompiledKernel large = kKernel;
  large.image.resize(100'000, 'x');
  {
    const FullDisk disk(cache_.folder());
    EXPECT_THAT(cache_.store(kId, large).value_or(""),
                AllOf(HasSubstr("writing "),
                      AnyOf(HasSubstr("No space left on device"), HasSubstr("File too large"))));
    EXPECT_EQ(cache_.find(kId, found_), DiskCache::Answer::kAbsent);
    EXPECT_TRUE(std::filesystem::is_empty(cache_.folder()));
  }
  EXPECT_EQ(cache_.store(kId, large), std::nullopt);
}

TEST_F(DiskCacheTest, what_killed_writers_left_is_removed_after_an_hour) {
  ASSERT_EQ(cache_.store(kId, kKernel), std::nullopt);
  const auto old = cache_.folder() / "a.XXXXXX.tmp", young = cache_.folder() / "b.XXXXXX.tmp";
  put(old, "half"), put(young, "half");
  const auto hour_ago = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(61);
  for (const auto& path : {old, cache_.path_of(kId)})
    std::filesystem::last_write_time(path, hour_ago);
  ASSERT_EQ(cache_.store(cache_id(kUnit, "compiler 2"), kKernel), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(young));
  EXPECT_EQ(cache_.find(kId, found_), DiskCache::Answer::kFound);
}

TEST(DefaultCacheFolder, is_the_first_variable_that_says_something) {
  const char* names[] = {"RAPT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::optional<std::string>> before;
  for (const char* name : names) {
    const char* value = std::getenv(name);
    before.push_back(value ? std::optional<std::string>(value) : std::nullopt);
  }
  setenv("RAPT_CACHE_DIR", "/a", 1), setenv("XDG_CACHE_HOME", "/b", 1), setenv("HOME", "/c", 1);
  EXPECT_EQ(default_cache_folder(), "/a");
  setenv("RAPT_CACHE_DIR", "", 1);
  EXPECT_EQ(default_cache_folder(), "/b/rapt");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(default_cache_folder(), "/c/.cache/rapt");
  unsetenv("HOME");
  EXPECT_EQ(default_cache_folder(), "");
  for (size_t i = 0; i < before.size(); i++)
    before[i] ? setenv(names[i], before[i]->c_str(), 1) : unsetenv(names[i]);
}

}  // namespace
}  // namespace rapt::jit
