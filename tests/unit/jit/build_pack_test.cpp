#include "jit/build_pack.hpp"

#include <set>

#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Spills where the head dim is odd.
class SpillingCompiler : public CountingCompiler {
 public:
  using CountingCompiler::CountingCompiler;

  CompiledKernel compile(const TranslationUnit& unit) const override {
    CompiledKernel kernel = CountingCompiler::compile(unit);
    if ((unit.key.back() - '0') % 2 == 1) {
      kernel.resources.spill_store_bytes = 8;
      kernel.resources.messages.emplace_back("(C7517) warpgroup.wait is injected");
    }
    return kernel;
  }
};

class BrokenCompiler : public CountingCompiler {
 public:
  using CountingCompiler::CountingCompiler;

  CompiledKernel compile(const TranslationUnit& unit) const override {
    if (unit.key.ends_with('3')) fail(ErrorCode::kInternal, "3 does not compile");
    return CountingCompiler::compile(unit);
  }
};

class BuildPackTest : public testing::Test {
 protected:
  // Head dims 0 to 8, the first three of them twice.
  static std::vector<PackUnit> units() {
    std::vector<PackUnit> units;
    for (int32_t i = 0; i < 12; i++)
      units.push_back({translation_unit(key_of(i % 9), source_of()), 100 * (i % 9)});
    return units;
  }
  template <typename Its = CountingCompiler>
  void build(int32_t num_threads, decltype(BuildPackOptions::progress) progress = {}) const {
    build_pack(path_, units(), Its(log_, std::chrono::milliseconds(1)), {num_threads, progress});
  }

  const ScratchFolder scratch_;
  const std::filesystem::path path_ = scratch_ / "core.rpk", log_ = scratch_ / "log";
};

TEST_F(BuildPackTest, compiles_each_key_once_whatever_the_threads) {
  std::set<std::string> files;
  for (const int32_t num_threads : {1, 4}) {
    std::filesystem::remove(log_);
    build(num_threads);
    EXPECT_EQ(count_lines(log_, "end"), 9);
    files.insert(contents(path_));
  }
  EXPECT_EQ(files.size(), 1u);
  const Pack pack(path_);
  EXPECT_EQ(pack.num_kernels(), 9u);
  for (int64_t i = 0; i < 9; i++) {
    CompiledKernel kernel;
    ASSERT_EQ(pack.find(translation_unit(key_of(i), source_of()), kernel), Pack::Answer::kFound);
    expect_right(kernel, key_of(i));
    EXPECT_EQ(pack.kernels()[static_cast<size_t>(i)].dynamic_shared_bytes, 100 * i);
  }
}

TEST_F(BuildPackTest, says_how_far_it_is) {
  std::vector<int32_t> done;
  std::set<std::string> keys;
  build(3, [&](int32_t now, int32_t total, std::string_view key) {
    EXPECT_EQ(total, 9);
    done.push_back(now);
    keys.emplace(key);
  });
  EXPECT_THAT(done, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(keys.size(), 1u + 9u);  // and "" for the first
}

TEST_F(BuildPackTest, kernels_with_problems_are_all_named_and_nothing_is_written) {
  put(path_, "before");
  EXPECT_THAT(error_of(ErrorCode::kInternal, [&] { build<SpillingCompiler>(2); }),
              AllOf(HasSubstr("8 problems of kernels as counting 1 compiles them"),
                    HasSubstr("head_dim=1: spills: 8 bytes stored"),
                    HasSubstr("head_dim=7: (C7517) warpgroup.wait"),
                    HasSubstr("head_dim=3: spills"), HasSubstr("head_dim=5: (C7517)"),
                    Not(HasSubstr("head_dim=2")), HasSubstr("RAPT_NVRTC")));
  EXPECT_EQ(count_lines(log_, "end"), 9);
  EXPECT_EQ(contents(path_), "before");
}

TEST_F(BuildPackTest, what_is_thrown_on_any_thread_ends_it) {
  for (const int32_t num_threads : {1, 4})
    EXPECT_EQ(error_of(ErrorCode::kInternal, [&] { build<BrokenCompiler>(num_threads); }),
              "3 does not compile");
  const auto stop_at_2 = [](int32_t done, int32_t, std::string_view) {
    if (done == 2) fail(ErrorCode::kUnsupported, "stopped");
  };
  std::filesystem::remove(log_);
  EXPECT_EQ(error_of(ErrorCode::kUnsupported, [&] { build(1, stop_at_2); }), "stopped");
  EXPECT_EQ(count_lines(log_, "end"), 2);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(BuildPackTest, a_place_that_is_not_there_is_refused_before_anything_is_compiled) {
  const SpillingCompiler compiler(log_);
  const auto refusal = [&](const std::filesystem::path& path) {
    return error_of(ErrorCode::kIo, [&] { build_pack(path, units(), compiler, {}); });
  };
  EXPECT_THAT(refusal(scratch_ / "none/core.rpk"),
              AllOf(HasSubstr("there is no folder"), HasSubstr("make it first")));
  EXPECT_THAT(refusal(scratch_ / "."), HasSubstr("is a folder"));
  EXPECT_FALSE(std::filesystem::exists(log_));
}

}  // namespace
}  // namespace rapt::jit
