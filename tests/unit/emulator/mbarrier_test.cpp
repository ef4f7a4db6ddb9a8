#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "ptx/threads.cuh"
#include "unit/emulator/run.hpp"

namespace rapt::device {
namespace {

constexpr u32 kBase = 1024, kBarrier = kBase + 8192;
constexpr Launch kShape = {.grid = {}, .threads = 64, .shared_bytes = 8192 + 64};

class Mbarriers : public testing::Test {
 protected:
  // Thread 0 initialises a barrier for so many arrivals before the others use it.
  static void init(u32 arrivals) {
    if (thread_index() == 0) {
      barrier_init(kBarrier, arrivals);
      fence_barrier_init();
    }
    sync_block();
  }
  Memory memory_;
};

TEST_F(Mbarriers, order_a_producer_and_a_consumer) {
  // Warp 0 fills four words in turn, warp 1 empties them.
  const auto kernel = [](bool waits_for_full, bool waits_for_empty) {
    const u32 full = kBarrier, empty = kBarrier + 8;
    if (thread_index() == 0) {
      barrier_init(full, 32);
      barrier_init(empty, 32);
      fence_barrier_init();
    }
    sync_block();
    for (u32 i = 0; i < 4; ++i) {
      const u32 mine = kBase + 4 * lane_index(), parity = i % 2;
      if (warp_index() == 0) {
        if (waits_for_empty && i > 0) barrier_wait(empty, parity ^ 1);
        store_shared_4(mine, i);
        barrier_arrive(full);
      } else {
        if (waits_for_full) barrier_wait(full, parity);
        load_shared_4(mine);
        barrier_arrive(empty);
      }
    }
  };
  expect_success(memory_, kShape, [&] { kernel(true, true); });
  for (uint64_t seed = 0; seed < 6; ++seed) {
    EXPECT_NE(report_of(memory_, kShape, {.seed = seed}, [&] { kernel(false, true); }), "");
    EXPECT_NE(report_of(memory_, kShape, {.seed = seed}, [&] { kernel(true, false); }), "");
  }
}

TEST_F(Mbarriers, that_never_complete_are_reported) {
  expect_report(memory_, kShape,
                "waits for the phase of parity 0 of the mbarrier at byte 8192: the current one, of "
                "parity 0, waits for 1 of 2 arrivals and 48 bytes",
                [] {
                  init(2);
                  if (thread_index() == 0) barrier_expect(kBarrier, 48);
                  barrier_wait(kBarrier, 0);
                });
}

TEST_F(Mbarriers, are_refused_when_misused) {
  expect_report(memory_, kShape, "no mbarrier is initialised at byte 8192",
                [] { barrier_wait(kBarrier, 0); });
  expect_report(memory_, kShape, "0 arrivals, must be", [] { init(0); });
  expect_report(memory_, kShape, "parity 2, must be 0 or 1", [] {
    init(1);
    barrier_wait(kBarrier, 2);
  });
  expect_report(memory_, kShape, "one arrival too many", [] {
    init(1);
    if (thread_index() != 0) return;
    barrier_expect(kBarrier, 16);
    barrier_arrive(kBarrier);
  });
}

TEST_F(Mbarriers, are_known_before_they_are_used) {
  for (uint64_t seed = 0; seed < 6; ++seed)
    EXPECT_THAT(report_of(memory_, kShape, {.seed = seed},
                          [] {
                            if (thread_index() == 0) barrier_init(kBarrier, 64);
                            barrier_arrive(kBarrier);
                          }),
                testing::ContainsRegex("no mbarrier is initialised|race on byte 8192"));
}

}  // namespace
}  // namespace rapt::device
