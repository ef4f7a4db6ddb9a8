// Indices, meetings of lanes and barriers of threads.
#include "ptx/threads.cuh"
#include "ptx/copy.cuh"
#include "unit/emulator/run.hpp"

namespace rapt::device {
namespace {

constexpr u32 kBase = 1024;

class Threads : public testing::Test {
 protected:
  Memory memory_;
  std::span<u32> out_ = memory_.allocate<u32>(64, "out");
};

TEST_F(Threads, have_indices_in_a_grid_of_three_dimensions) {
  // out[z][y][x][thread]: who was there.
  const std::span<u32> out = memory_.allocate<u32>(3 * 2 * 5 * 64, "out");
  launch(memory_, {.grid = {5, 2, 3}, .threads = 64, .shared_bytes = 0}, {}, [&] {
    const u32 block = (block_index_z() * 2 + block_index_y()) * grid_size_x() + block_index_x();
    out[block * 64 + thread_index()] = block << 16 | warp_index() << 8 | lane_index();
  });
  for (u32 i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i / 64 << 16 | i % 64 / 32 << 8 | i % 32);
}

TEST_F(Threads, shuffle_between_lanes) {
  expect_success(memory_, kOneWarp, [&] {
    const u32 lane = lane_index();
    const float other = shuffle_xor(static_cast<float>(lane), 5);
    out_[lane] = static_cast<u32>(other) | shuffle(100 + lane, lane / 8) << 16;
  });
  for (u32 lane = 0; lane < 32; ++lane) EXPECT_EQ(out_[lane], (lane ^ 5) | (100 + lane / 8) << 16);
}

TEST_F(Threads, vote) {
  expect_success(memory_, kOneWarp, [&] {
    const bool one = any_lane(lane_index() == 17), none = any_lane(false);
    out_[lane_index()] = one && !none;
  });
  EXPECT_THAT(out_.first(32), testing::Each(1));
}

TEST_F(Threads, may_run_ahead_of_others_between_meetings) {
  // Each lane brings its number of the meeting: a fast lane's next must not replace this one's.
  expect_success(memory_, kOneWarp, [&] {
    for (u32 i = 0; i < 50; ++i)
      if (shuffle(i * 32 + lane_index(), 31 - lane_index()) != i * 32 + 31 - lane_index())
        out_[lane_index()] = 0;
  });
  EXPECT_THAT(out_, testing::Each(~0u));
}

TEST_F(Threads, that_have_ended_cannot_be_met) {
  expect_report(memory_, kOneWarp, "bar.warp.sync", [] {
    if (lane_index() != 9) sync_warp();
  });
  expect_report(memory_, {.grid = {}, .threads = 48, .shared_bytes = 0}, "needs all 32 lanes",
                [] { any_lane(true); });
}

TEST_F(Threads, meet_in_one_instruction) {
  expect_report(memory_, kOneWarp, "of other lanes", [] {
    if (lane_index() < 20)
      shuffle(1, 2);
    else
      sync_warp();
  });
}

TEST_F(Threads, are_ordered_by_sync_warp_but_not_by_shuffles) {
  const auto exchange = [](bool sync) {
    store_shared_4(kBase + 4 * lane_index(), 1);
    if (sync)
      sync_warp();
    else
      shuffle(1, 2);
    load_shared_4(kBase + 4 * (lane_index() ^ 1));
  };
  expect_success(memory_, kOneWarp, [&] { exchange(true); });
  expect_report(memory_, kOneWarp, "nothing orders that after the write by warp 0 lane",
                [&] { exchange(false); });
}

TEST_F(Threads, are_ordered_by_sync_block) {
  expect_success(memory_, kTwoWarps, [] {
    store_shared_4(kBase + 4 * thread_index(), 1);
    sync_block();
    load_shared_4(kBase + 4 * (thread_index() ^ 32));
    sync_block();
    store_shared_4(kBase + 4 * (thread_index() ^ 32), 1);
  });
  // sync_warp() is not enough between warps.
  for (uint64_t seed = 0; seed < 6; ++seed)
    EXPECT_THAT(report_of(memory_, kTwoWarps, {.seed = seed},
                          [] {
                            store_shared_4(kBase + 4 * thread_index(), 1);
                            sync_warp();
                            load_shared_4(kBase + 4 * (thread_index() ^ 32));
                          }),
                testing::ContainsRegex("never written|nothing orders that after the"));
}

TEST_F(Threads, may_not_write_what_others_read_before_a_barrier) {
  expect_report(memory_, kTwoWarps, "nothing orders that after the", [] {
    store_shared_4(kBase + 4 * thread_index(), 1);
    sync_block();
    load_shared_4(kBase + 4 * (thread_index() ^ 32));
    store_shared_4(kBase + 4 * thread_index(), 2);
  });
}

TEST_F(Threads, of_some_warps_meet_at_a_named_barrier) {
  const Launch four_warps = {.grid = {}, .threads = 128, .shared_bytes = 4096};
  const auto exchange = [](u32 partner) {
    const u32 pair = warp_index() / 2;
    store_shared_4(kBase + 4 * thread_index(), 1);
    sync_named(1 + pair, 64);
    load_shared_4(kBase + 4 * (thread_index() ^ partner));
  };
  expect_success(memory_, four_warps, [&] { exchange(32); });
  for (uint64_t seed = 0; seed < 6; ++seed)
    EXPECT_THAT(report_of(memory_, four_warps, {.seed = seed}, [&] { exchange(64); }),
                testing::ContainsRegex("never written|nothing orders that after the"));
}

TEST_F(Threads, may_arrive_without_waiting) {
  const auto kernel = [](u32 writer) {
    if (warp_index() == writer) store_shared_4(kBase + 4 * lane_index(), 1);
    if (warp_index() == 0)
      arrive_named(1, 64);
    else
      sync_named(1, 64);
    if (warp_index() != writer) load_shared_4(kBase + 4 * lane_index());
  };
  expect_success(memory_, kTwoWarps, [&] { kernel(0); });
  for (uint64_t seed = 0; seed < 6; ++seed)
    EXPECT_THAT(report_of(memory_, kTwoWarps, {.seed = seed}, [&] { kernel(1); }),
                testing::ContainsRegex("never written|nothing orders that after the"));
}

TEST_F(Threads, arrive_once_in_a_phase) {
  const Launch three_warps = {.grid = {}, .threads = 96, .shared_bytes = 0};
  expect_report(memory_, three_warps, "comes to barrier 1 twice in one phase", [] {
    if (warp_index() != 0) return;
    arrive_named(1, 96);
    arrive_named(1, 96);
  });
}

TEST_F(Threads, agree_on_a_named_barrier) {
  expect_report(memory_, {.grid = {}, .threads = 96, .shared_bytes = 0}, "threads here and for",
                [] { sync_named(1, warp_index() == 0 ? 96 : 64); });
  expect_report(memory_, kTwoWarps, "barrier 16 is not one of 1 to 15", [] { sync_named(16, 64); });
  expect_report(memory_, kTwoWarps, "40 threads are not whole warps", [] { sync_named(1, 40); });
}

TEST_F(Threads, of_a_warp_come_to_a_barrier_from_one_line) {
  expect_report(memory_, kTwoWarps, "other lanes are at bar.sync 0 at threads_test.cpp", [] {
    if (thread_index() % 2)
      sync_block();
    else
      sync_block();
  });
}

TEST_F(Threads, that_wait_for_each_other_are_reported_with_lines) {
  const int line = __LINE__ + 3;
  const auto kernel = [] {
    if (warp_index() == 0)
      sync_block();
    else
      sync_named(3, 64);
  };
  const std::string file = "threads_test.cpp:";
  EXPECT_EQ(report_of(memory_, kTwoWarps, {}, kernel),
            "deadlock:\n"
            "  block (0, 0, 0) warp 0 lane 0 to 31, bar.sync 0 at " +
                file + std::to_string(line) +
                ", waits for barrier 0 (32 of 64 threads there)\n"
                "  block (0, 0, 0) warp 1 lane 0 to 31, bar.sync at " +
                file + std::to_string(line + 2) + ", waits for barrier 3 (32 of 64 threads there)");
}

TEST_F(Threads, that_wait_for_lanes_are_reported_with_the_missing_ones) {
  expect_report(memory_, kTwoWarps, "lane 9 to 31, bar.warp.sync at threads_test.cpp", [] {
    if (lane_index() < 9)
      sync_block();
    else
      sync_warp();
  });
  expect_report(memory_, kTwoWarps, "waits for lanes 0 1 2", [] {
    if (lane_index() < 3)
      sync_block();
    else
      sync_warp();
  });
}

}  // namespace
}  // namespace rapt::device
