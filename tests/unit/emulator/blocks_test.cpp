// Blocks that work together: atomics, fences and what orders global memory.
#include <algorithm>
#include <numeric>

#include "ptx/atomic.cuh"
#include "ptx/copy.cuh"
#include "ptx/threads.cuh"
#include "unit/emulator/run.hpp"

namespace rapt::device {
namespace {

constexpr u32 kBlocks = 6, kThreads = 64;

// What is left out of the way that a split result is merged.
enum class Missing { kNothing, kBarrierBefore, kFenceBefore, kFenceAfter, kBarrierAfter };

// Every block stores a part of 64 numbers; the one that comes last adds the parts up.
class LastBlockMerges : public testing::Test {
 protected:
  LastBlockMerges() { counter_[0] = 0; }

  void merge(Missing missing, bool coherent = true) {
    const u32 me = thread_index();
    store_global_f32(&parts_[block_index_x() * kThreads + me],
                     static_cast<float>(block_index_x() * 1000 + me));
    if (missing != Missing::kBarrierBefore) sync_block();
    if (me == 0) {
      if (missing != Missing::kFenceBefore) fence_device();
      *shared_base<u32>() = atomic_add(&counter_[0], 1);
      if (missing != Missing::kFenceAfter) fence_device();
    }
    if (missing != Missing::kBarrierAfter) sync_block();
    if (*shared_base<volatile u32>() != grid_size_x() - 1) return;
    float sum = 0;
    for (u32 block = 0; block < grid_size_x(); ++block) {
      const float* part = &parts_[block * kThreads + (me ^ 1)];
      sum += coherent ? load_coherent_f32(part) : load_global_f32(part);
    }
    store_global_f32(&sums_[me ^ 1], sum);
  }
  std::string report(Missing missing, uint64_t seed, bool coherent = true) {
    counter_[0] = 0;
    return report_of(memory_, {.grid = {kBlocks}, .threads = kThreads, .shared_bytes = 16},
                     {.seed = seed}, [&] { merge(missing, coherent); });
  }

  Memory memory_;
  std::span<float> parts_ = memory_.allocate<float>(kBlocks * kThreads, "parts");
  std::span<float> sums_ = memory_.allocate<float>(kThreads, "sums");
  std::span<u32> counter_ = memory_.allocate<u32>(1, "counter");
};

TEST_F(LastBlockMerges, all_parts) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    std::fill(sums_.begin(), sums_.end(), -1.f);
    ASSERT_EQ(report(Missing::kNothing, seed), "") << "seed " << seed;
    EXPECT_EQ(counter_[0], kBlocks);
    for (u32 i = 0; i < kThreads; ++i) EXPECT_EQ(sums_[i], 15000 + 6 * i);
  }
}

TEST_F(LastBlockMerges, only_with_fences_and_barriers) {
  for (const Missing missing : {Missing::kBarrierBefore, Missing::kFenceBefore,
                                Missing::kFenceAfter, Missing::kBarrierAfter})
    for (uint64_t seed = 0; seed < 12; ++seed)
      EXPECT_THAT(report(missing, seed),
                  testing::ContainsRegex("race on byte .*nothing orders that after the write|never "
                                         "written"))
          << static_cast<int>(missing) << ", seed " << seed;
}

TEST_F(LastBlockMerges, only_with_loads_that_see_the_other_blocks) {
  for (uint64_t seed = 0; seed < 6; ++seed)
    EXPECT_THAT(report(Missing::kNothing, seed, false),
                testing::HasSubstr("of parts is read as what no thread of the launch writes"));
}

class Blocks : public testing::Test {
 protected:
  Memory memory_;
  std::span<u32> out_ = memory_.allocate<u32>(64, "out");
};

TEST_F(Blocks, count_with_atomics) {
  std::fill(out_.begin(), out_.end(), 0);
  const std::span<u32> seen = memory_.allocate<u32>(4 * 32, "seen");
  launch(memory_, {.grid = {4}, .threads = 32, .shared_bytes = 0}, {.seed = 5},
         [&] { seen[block_index_x() * 32 + thread_index()] = atomic_add(&out_[0], 1); });
  std::sort(seen.begin(), seen.end());
  for (u32 i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i);
  EXPECT_EQ(out_[0], 128u);
}

TEST_F(Blocks, may_not_write_one_place) {
  expect_report(
      memory_, {.grid = {2}, .threads = 1, .shared_bytes = 0},
      "race on byte 12 of out: writes it, and nothing orders that after the write by block",
      [&] { store_global_4(&out_[3], 1); });
}

TEST_F(Blocks, may_not_read_what_atomics_count_as_if_it_were_settled) {
  out_[0] = 0;
  const auto kernel = [&] {
    if (block_index_x() == 0)
      atomic_add(&out_[0], 1);
    else
      load_coherent_f32(&out_[0]);
  };
  // Seed 0 runs block 0 first.
  EXPECT_THAT(
      report_of(memory_, {.grid = {2}, .threads = 1, .shared_bytes = 0}, {}, kernel),
      testing::HasSubstr("race on byte 0 of out: reads it, and nothing orders that after the "
                         "write by block 0 warp 0 lane 0, atom.add at blocks_test.cpp"));
}

TEST_F(Blocks, may_not_store_where_others_count) {
  out_[0] = 0;
  const auto kernel = [&] {
    if (block_index_x() == 0)
      store_global_4(&out_[0], 1);
    else
      atomic_add(&out_[0], 1);
  };
  EXPECT_THAT(report_of(memory_, {.grid = {2}, .threads = 1, .shared_bytes = 0}, {}, kernel),
              testing::HasSubstr("race on byte 0 of out: writes it"));
}

TEST_F(Blocks, publish_what_was_stored_before_the_fence) {
  out_[0] = 0;
  // Block 1 runs after block 0 has counted, block 2 after both; it has seen block 0's fence only.
  const auto kernel = [&](bool fence_first, u32 reader) {
    for (u32 i = 0; i < 4 * block_index_x(); ++i) sync_block();
    if (block_index_x() == 0) {
      if (fence_first) fence_device();
      store_global_4(&out_[1], 1);
      if (!fence_first) fence_device();
      atomic_add(&out_[0], 1);
    } else if (block_index_x() == 1) {
      store_global_4(&out_[2], 1);
      if (reader == 1) {
        atomic_add(&out_[0], 1);
        fence_device();
        load_coherent_f32(&out_[1]);
      }
    } else if (reader == 2) {
      atomic_add(&out_[0], 1);
      fence_device();
      load_coherent_f32(&out_[2]);
    }
  };
  const Launch three = {.grid = {3}, .threads = 1, .shared_bytes = 0};
  EXPECT_EQ(report_of(memory_, three, {}, [&] { kernel(false, 1); }), "");
  EXPECT_THAT(report_of(memory_, three, {}, [&] { kernel(true, 1); }),
              testing::HasSubstr("race on byte 4 of out: reads it"));
  EXPECT_THAT(report_of(memory_, three, {}, [&] { kernel(false, 2); }),
              testing::HasSubstr("race on byte 8 of out: reads it"));
}

TEST_F(Blocks, run_together_or_one_by_one) {
  out_[0] = 0;
  // The blocks that have begun when each one ends.
  const auto begun = [&](u32 resident) {
    out_[0] = 0;
    Options options;
    options.resident_blocks = resident;
    launch(memory_, {.grid = {8}, .threads = 32, .shared_bytes = 0}, options, [&] {
      if (thread_index() == 0) atomic_add(&out_[0], 1);
      for (u32 i = 0; i < 10; ++i) sync_block();
      if (thread_index() == 0) out_[1 + block_index_x()] = atomic_add(&out_[0], 0);
    });
    return out_[1];
  };
  EXPECT_EQ(begun(1), 1u);
  EXPECT_EQ(begun(3), 3u);
  EXPECT_EQ(begun(100), 8u);
}

TEST_F(Blocks, of_one_block_are_ordered_by_its_barrier) {
  expect_success(memory_, kTwoWarps, [&] {
    store_global_4(&out_[thread_index()], thread_index());
    sync_block();
    if (load_coherent_f32(&out_[thread_index() ^ 32]) < 0) out_[0] = 0;
  });
  expect_report(memory_, kTwoWarps, "race on byte", [&] {
    store_global_4(&out_[thread_index()], thread_index());
    sync_warp();
    store_global_4(&out_[thread_index() ^ 32], thread_index());
  });
}

}  // namespace
}  // namespace rapt::device
