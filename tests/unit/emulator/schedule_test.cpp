// What a seed decides.
#include <set>
#include <vector>

#include "ptx/atomic.cuh"
#include "ptx/copy.cuh"
#include "ptx/threads.cuh"
#include "rapt/error.hpp"
#include "unit/emulator/run.hpp"

namespace rapt::device {
namespace {

constexpr u32 kBase = 1024;

class Schedule : public testing::Test {
 protected:
  // The order in which eight warps come to an atomic, ten times each.
  std::vector<u32> order(uint64_t seed) {
    counter_[0] = 0;
    launch(memory_, {.grid = {2}, .threads = 128, .shared_bytes = 0}, {.seed = seed}, [&] {
      for (u32 i = 0; i < 10; ++i) {
        sync_warp();
        if (lane_index() == 0)
          places_[atomic_add(&counter_[0], 1)] = block_index_x() * 4 + warp_index();
      }
    });
    return {places_.begin(), places_.end()};
  }

  Memory memory_;
  std::span<u32> counter_ = memory_.allocate<u32>(1, "counter");
  std::span<u32> places_ = memory_.allocate<u32>(80, "places");
};

TEST_F(Schedule, is_the_same_for_the_same_seed) {
  for (uint64_t seed = 0; seed < 10; ++seed) EXPECT_EQ(order(seed), order(seed));
}

TEST_F(Schedule, is_another_for_another_seed) {
  std::set<std::vector<u32>> orders;
  for (uint64_t seed = 0; seed < 10; ++seed) orders.insert(order(seed));
  EXPECT_GE(orders.size(), 9u);
}

TEST_F(Schedule, takes_warps_in_turn_with_seed_0) {
  const std::vector<u32> places = order(0);
  for (u32 i = 0; i < 8; ++i)
    EXPECT_EQ(std::count(places.begin(), places.begin() + 8, i), 1) << "warp " << i;
}

TEST_F(Schedule, reports_the_same_for_the_same_seed) {
  // A race between four warps: which pair is found depends on the seed only.
  const auto kernel = [] {
    store_shared_4(kBase + 4 * (thread_index() % 40), 0);
    sync_warp();
    load_shared_4(kBase + 4 * (thread_index() * 7 % 40));
  };
  const Launch four_warps = {.grid = {3}, .threads = 128, .shared_bytes = 4096};
  std::set<std::string> reports;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const std::string report = report_of(memory_, four_warps, {.seed = seed}, kernel);
    EXPECT_NE(report, "");
    EXPECT_EQ(report_of(memory_, four_warps, {.seed = seed}, kernel), report);
    reports.insert(report);
  }
  EXPECT_GT(reports.size(), 3u);
}

TEST_F(Schedule, ends_what_would_never_end) {
  Options options;
  options.max_turns = 1000;
  EXPECT_THAT(report_of(memory_, kOneWarp, options,
                        [] {
                          while (true) sync_warp();
                        }),
              testing::HasSubstr("livelock"));
}

TEST_F(Schedule, refuses_launches_that_no_device_takes) {
  const auto nothing = [] {};
  EXPECT_THROW(launch(memory_, {.grid = {}, .threads = 0, .shared_bytes = 0}, {}, nothing), Error);
  EXPECT_THROW(launch(memory_, {.grid = {}, .threads = 1025, .shared_bytes = 0}, {}, nothing),
               Error);
  EXPECT_THROW(launch(memory_, {.grid = {1, 0, 1}, .threads = 32, .shared_bytes = 0}, {}, nothing),
               Error);
}

TEST_F(Schedule, goes_on_after_a_failure) {
  EXPECT_NE(report_of(memory_, kOneWarp, {}, [] { load_shared_4(0); }), "");
  expect_success(memory_, kOneWarp, [] { sync_block(); });
}

}  // namespace
}  // namespace rapt::device
