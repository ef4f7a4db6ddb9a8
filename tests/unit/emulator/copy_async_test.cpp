#include <algorithm>
#include <numeric>

#include "ptx/copy.cuh"
#include "ptx/threads.cuh"
#include "unit/emulator/run.hpp"

namespace rapt::device {
namespace {

constexpr u32 kPoison = 0xFFFFFFFF, kBase = 1024;
constexpr Options kLate = {.seed = 0}, kMixed = {.seed = 1}, kEarly = {.seed = 2};

// 1, 2, 3, ...
class CopyAsync : public testing::Test {
 protected:
  CopyAsync() { std::iota(source_.begin(), source_.end(), 1); }

  Options unordered(Options options) {
    options.check_order = false;  // to look at what must not be looked at
    return options;
  }
  // The word that lane 0 sees before and after the wait.
  std::pair<u32, u32> before_and_after_wait(const Options& options) {
    std::pair<u32, u32> seen;
    launch(memory_, kOneWarp, unordered(options), [&] {
      const u32 mine = shared_address(shared_base<Quad>() + lane_index());
      copy_async_16(mine, &source_[4 * lane_index()], 0);
      copy_async_commit();
      const u32 before = load_shared_4(mine);
      copy_async_wait<0>();
      const u32 after = load_shared_4(mine);
      if (lane_index() == 0) seen_ = {before, after};
    });
    seen = seen_;
    return seen;
  }

  Memory memory_;
  std::span<u32> source_ = memory_.allocate<u32>(256, "source");
  std::span<u32> out_ = memory_.allocate<u32>(256, "out");
  std::span<std::pair<u32, u32>> seen_span_ = memory_.allocate<std::pair<u32, u32>>(1, "seen");
  std::pair<u32, u32>& seen_ = seen_span_[0];
};

TEST_F(CopyAsync, lands_at_the_wait_when_late) {
  EXPECT_EQ(before_and_after_wait(kLate), std::pair(kPoison, 1u));
}

TEST_F(CopyAsync, lands_at_its_issue_when_early) {
  EXPECT_EQ(before_and_after_wait(kEarly), std::pair(1u, 1u));
}

TEST_F(CopyAsync, lands_on_either_side_when_mixed) {
  int early = 0;
  constexpr int kSeeds = 40;
  for (int i = 0; i < kSeeds; ++i) {
    const auto [before, after] = before_and_after_wait({.seed = kMixed.seed + 3 * i});
    EXPECT_EQ(after, 1u);
    early += before == 1;
  }
  EXPECT_GT(early, kSeeds / 4);
  EXPECT_LT(early, kSeeds);
}

TEST_F(CopyAsync, lands_between_issue_and_wait_when_mixed) {
  int between = 0;
  for (int i = 0; i < 40; ++i) {
    launch(memory_, kOneWarp, unordered({.seed = kMixed.seed + 3 * i}), [&] {
      copy_async_16(kBase + 16 * lane_index(), &source_[0], 0);
      const u32 issued = load_shared_4(kBase + 16 * lane_index());
      copy_async_commit();
      const u32 committed = load_shared_4(kBase + 16 * lane_index());
      copy_async_wait<0>();
      if (lane_index() == 0) seen_ = {issued, committed};
    });
    between += seen_ == std::pair(kPoison, 1u);
  }
  EXPECT_GT(between, 0);
}

TEST_F(CopyAsync, brings_all_sixteen_bytes_of_every_lane) {
  expect_success(memory_, kOneWarp, [&] {
    const u32 mine = shared_address(shared_base<Quad>() + lane_index());
    copy_async_16(mine, &source_[4 * lane_index()], 0);
    copy_async_commit();
    copy_async_wait<0>();
    store_global_16(&out_[4 * lane_index()], load_shared_16(mine));
  });
  EXPECT_TRUE(std::equal(out_.begin(), out_.begin() + 128, source_.begin()));
}

TEST_F(CopyAsync, fills_what_it_does_not_read_with_zeros) {
  expect_success(memory_, kOneWarp, [&] {
    const u32 mine = shared_address(shared_base<Quad>() + lane_index());
    store_shared_16(mine, {7, 7, 7, 7});
    copy_async_16(mine, &source_[4 * lane_index()], lane_index() % 2 == 1 ? 0 : -1);
    copy_async_commit();
    copy_async_wait<0>();
    store_global_16(&out_[4 * lane_index()], load_shared_16(mine));
  });
  const auto* bytes = reinterpret_cast<const u8*>(out_.data());
  const auto* from = reinterpret_cast<const u8*>(source_.data());
  for (u32 i = 0; i < 512; ++i) EXPECT_EQ(bytes[i], i / 16 % 2 ? from[i] : 0) << "byte " << i;
}

TEST_F(CopyAsync, touches_no_global_memory_for_zeros) {
  expect_success(memory_, kOneWarp, [&] {
    copy_async_16(kBase + 16 * lane_index(), nullptr, -1);
    copy_async_commit();
    copy_async_wait<0>();
    store_global_4(&out_[lane_index()], load_shared_4(kBase + 16 * lane_index() + 12));
  });
  EXPECT_EQ(std::count(out_.begin(), out_.begin() + 32, 0u), 32);
}

TEST_F(CopyAsync, leaves_the_youngest_groups_in_flight) {
  launch(memory_, kOneWarp, unordered(kLate), [&] {
    const u32 mine = kBase + 64 * lane_index();
    for (u32 i = 0; i < 3; ++i) {
      copy_async_16(mine + 16 * i, &source_[4 * i], 0);
      copy_async_commit();
    }
    copy_async_wait<2>();
    for (u32 i = 0; i < 3; ++i) store_global_4(&out_[i], load_shared_4(mine + 16 * i));
    copy_async_wait<1>();
    for (u32 i = 0; i < 3; ++i) store_global_4(&out_[3 + i], load_shared_4(mine + 16 * i));
    copy_async_wait<0>();
  });
  EXPECT_THAT(out_.first(6), testing::ElementsAre(1, kPoison, kPoison, 1, 5, kPoison));
}

TEST_F(CopyAsync, does_not_wait_for_what_is_not_committed) {
  expect_report(memory_, kOneWarp, "no wait covers its cp.async at copy_async_test.cpp", [&] {
    copy_async_16(kBase + 16 * lane_index(), source_.data(), 0);
    copy_async_wait<0>();
  });
}

TEST_F(CopyAsync, reads_its_source_when_it_lands) {
  for (const Options& options : {kLate, kEarly}) {
    source_[0] = 1;
    launch(memory_, kOneWarp, unordered(options), [&] {
      if (lane_index() != 0) return;
      copy_async_16(kBase, source_.data(), 0);
      copy_async_commit();
      source_[0] = 100;
      copy_async_wait<0>();
      store_global_4(&out_[0], load_shared_4(kBase));
    });
    EXPECT_EQ(out_[0], options.seed == kLate.seed ? 100u : 1u);
  }
}

TEST_F(CopyAsync, must_be_waited_for_by_its_own_thread) {
  const auto kernel = [&] {
    copy_async_16(kBase + 16 * lane_index(), source_.data(), 0);
    copy_async_commit();
    load_shared_4(kBase + 16 * lane_index());
    copy_async_wait<0>();
  };
  EXPECT_THAT(report_of(memory_, kOneWarp, kLate, kernel),
              testing::HasSubstr("reads byte 0 of shared "
                                 "memory, which was never written"));
  EXPECT_THAT(report_of(memory_, kOneWarp, kEarly, kernel),
              testing::HasSubstr("reads it, and nothing orders that after the write by a copy of "
                                 "warp 0 lane 0, cp.async at copy_async_test.cpp"));
}

TEST_F(CopyAsync, needs_a_barrier_before_another_thread_reads) {
  const auto exchange = [&](bool barrier) {
    copy_async_16(kBase + 16 * thread_index(), source_.data(), 0);
    copy_async_commit();
    copy_async_wait<0>();
    if (barrier) sync_block();
    load_shared_4(kBase + 16 * (thread_index() ^ 32));
  };
  expect_success(memory_, kTwoWarps, [&] { exchange(true); });
  for (uint64_t seed = 0; seed < 6; ++seed)
    EXPECT_THAT(report_of(memory_, kTwoWarps, {.seed = seed}, [&] { exchange(false); }),
                testing::ContainsRegex("never written|nothing orders that after the"));
}

TEST_F(CopyAsync, needs_a_barrier_between_the_others_reads_and_the_next_copy) {
  const auto reuse = [&](bool barrier) {
    store_shared_4(kBase + 16 * thread_index(), 0);
    sync_block();
    load_shared_4(kBase + 16 * (thread_index() ^ 32));
    if (barrier) sync_block();
    copy_async_16(kBase + 16 * thread_index(), source_.data(), 0);
    copy_async_commit();
    copy_async_wait<0>();
  };
  expect_success(memory_, kTwoWarps, [&] { reuse(true); });
  expect_report(memory_, kTwoWarps, "nothing orders that after the", [&] { reuse(false); });
}

TEST_F(CopyAsync, may_land_before_what_its_thread_does_next) {
  expect_report(memory_, kOneWarp, "race on byte 0", [&] {
    store_shared_16(kBase + 16 * lane_index(), {});
    copy_async_16(kBase + 16 * lane_index(), source_.data(), 0);
    copy_async_commit();
    load_shared_4(kBase + 16 * lane_index());
    copy_async_wait<0>();
  });
}

TEST_F(CopyAsync, races_with_a_second_copy_to_the_same_place) {
  expect_report(memory_, kOneWarp, "after the write by a copy of warp 0 lane 0", [&] {
    copy_async_16(kBase + 16 * lane_index(), source_.data(), 0);
    copy_async_commit();
    copy_async_16(kBase + 16 * lane_index(), source_.data(), 0);
    copy_async_commit();
    copy_async_wait<0>();
  });
}

TEST_F(CopyAsync, refuses_wrong_addresses) {
  const auto copy = [&](u32 shared, const void* global) {
    copy_async_16(shared, global, 0);
    copy_async_commit();
    copy_async_wait<0>();
  };
  expect_report(memory_, kOneWarp, "byte 8 of shared memory is not aligned to 16 bytes",
                [&] { copy(kBase + 8, source_.data()); });
  expect_report(memory_, kOneWarp, "byte 4096 is outside the 4096 bytes of shared memory",
                [&] { copy(kBase + 4096, source_.data()); });
  expect_report(memory_, kOneWarp, "byte -16 is outside", [&] { copy(kBase - 16, &out_[0]); });
  expect_report(memory_, kOneWarp, "byte 4 of source is not aligned to 16 bytes",
                [&] { copy(kBase, &source_[1]); });
  expect_report(memory_, kOneWarp,
                "16 bytes at 0 bytes past the end of source, not inside an allocation",
                [&] { copy(kBase, source_.data() + 256); });
}

TEST_F(CopyAsync, sees_the_end_of_a_buffer_to_the_byte) {
  for (const size_t size : {16, 15}) {
    const std::span<u16> buffer = memory_.allocate<u16>(size, "buffer");
    const auto copy = [&] {
      copy_async_16(kBase + 16 * lane_index(), &buffer[8], 0);
      copy_async_commit();
      copy_async_wait<0>();
    };
    if (size == 16)
      expect_success(memory_, kOneWarp, copy);
    else
      expect_report(memory_, kOneWarp, "16 bytes at byte 16 of buffer, not inside an allocation",
                    copy);
  }
}

}  // namespace
}  // namespace rapt::device
