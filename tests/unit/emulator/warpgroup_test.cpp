// wgmma: products of operands in every canonical layout, and what must not be touched while they
// run.
#include <cmath>
#include <cstring>

#include "core/float16.hpp"
#include "emulator/tensor_map.hpp"
#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "ptx/tensor.cuh"
#include "ptx/threads.cuh"
#include "ptx/warpgroup.cuh"
#include "unit/emulator/run.hpp"

namespace rapt::device {
namespace {

using emulator::ElementType;
using emulator::Swizzle;

constexpr u32 kBase = 1024;
constexpr Launch kWarpgroup = {.grid = {}, .threads = 128, .shared_bytes = 32 << 10};

u64 descriptor(u32 address, u32 leading, u32 stride, Swizzle swizzle) {
  constexpr u64 kModes[] = {0, 3, 2, 1};
  return u64{address >> 4} | u64{leading >> 4} << 16 | u64{stride >> 4} << 32 |
         kModes[static_cast<int>(swizzle)] << 62;
}

struct Layout {
  Swizzle swizzle;
  bool mn_major;  // of b; a has its depth contiguous
  bool fp16;
};

// d[64 x 64] = a[64 x depth] b[depth x 64], one swizzled line deep, loaded by TMA. Small integers,
// so that the product is exact.
class Layouts : public testing::TestWithParam<Layout> {
 protected:
  static constexpr u32 kRows = 64, kColumns = 64;

  TensorMap map_of(std::span<u16> matrix, u32 rows, u32 columns, u32 box_rows, u32 box_columns) {
    const uint64_t dims[] = {columns, rows}, strides[] = {columns * 2};
    const uint32_t box[] = {box_columns, box_rows};
    const auto encoded = emulator::encode_tensor_map(
        memory_, {matrix.data(), 2, dims, strides, box, GetParam().swizzle});
    TensorMap map = {};
    std::memcpy(&map, &encoded, sizeof encoded);
    return map;
  }
  u16 narrow(int x) const {
    const auto value = static_cast<float>(x);
    return GetParam().fp16 ? float_to_float16(value) : float_to_bfloat16(value);
  }
  Memory memory_;
};

TEST_P(Layouts, give_the_product) {
  const auto [swizzle, mn_major, fp16] = GetParam();
  const u32 line = 16u << static_cast<int>(swizzle), line_elems = line / 2;
  const bool plain = swizzle == Swizzle::kNone;
  const u32 steps = plain ? 1 : std::max(1u, line_elems / 16), depth = 16 * steps;
  const auto a_at = [](u32 row, u32 k) { return int(row * 7 + k * 3) % 13 - 6; };
  const auto b_at = [](u32 k, u32 column) { return int(column * 5 + k * 11) % 11 - 5; };
  const std::span<u16> a = memory_.allocate<u16>(kRows * depth, "a");
  const std::span<u16> b = memory_.allocate<u16>(kColumns * depth, "b");
  const std::span<float> d = memory_.allocate<float>(kRows * kColumns, "d");
  for (u32 k = 0; k < depth; ++k) {
    for (u32 row = 0; row < kRows; ++row) a[row * depth + k] = narrow(a_at(row, k));
    for (u32 column = 0; column < kColumns; ++column)
      b[mn_major ? k * kColumns + column : column * depth + k] = narrow(b_at(k, column));
  }
  // Boxes are one line wide.
  const TensorMap a_map = map_of(a, kRows, depth, kRows, line_elems);
  const TensorMap b_map = mn_major ? map_of(b, depth, kColumns, depth, line_elems)
                                   : map_of(b, kColumns, depth, kColumns, line_elems);
  const u32 a_box = kRows * line, b_box = (mn_major ? depth : kColumns) * line;
  const u32 a_boxes = depth / line_elems, b_boxes = (mn_major ? kColumns : depth) / line_elems;
  const ElementType type = fp16 ? ElementType::kF16 : ElementType::kBf16;
  const u32 barrier = kBase, to_a = kBase + 1024, to_b = to_a + 8192;
  const auto kernel = [&] {
    alignas(64) const TensorMap maps[2] = {a_map, b_map};
    if (thread_index() == 0) {
      barrier_init(barrier, 1);
      fence_barrier_init();
      barrier_expect(barrier, a_boxes * a_box + b_boxes * b_box);
      for (u32 i = 0; i < a_boxes; ++i) {
        const int at[5] = {static_cast<int>(i * line_elems)};
        load_tensor(to_a + i * a_box, maps[0], barrier, at, kEvictFirst);
      }
      for (u32 i = 0; i < b_boxes; ++i) {
        const int at[5] = {static_cast<int>(i * line_elems)};
        load_tensor(to_b + i * b_box, maps[1], barrier, at, kEvictFirst);
      }
    }
    sync_block();
    barrier_wait(barrier, 0);
    float sums[kColumns / 2];
    warpgroup_fence();
    for (u32 step = 0; step < steps; ++step) {
      const u32 eight_rows = plain ? 128 : 8 * line;
      const u64 da = descriptor(to_a + step * 32, a_box, eight_rows, swizzle);
      const u64 db = !mn_major ? descriptor(to_b + step * 32, b_box, eight_rows, swizzle)
                     : plain   ? descriptor(to_b, 128, b_box, swizzle)
                               : descriptor(to_b + step * 16 * line, b_box, eight_rows, swizzle);
      emulator::warpgroup_multiply({type, kColumns, step > 0, false, false, mn_major, da, db}, sums,
                                   nullptr, Location::current());
    }
    warpgroup_commit();
    emulator::warpgroup_wait(0, Location::current());
    // PTX ISA, the D fragment: row lane / 4, and 8 rows on; two neighbours of every eight columns.
    const u32 row = warp_index() * 16 + lane_index() / 4, column = lane_index() % 4 * 2;
    for (u32 i = 0; i < kColumns / 2; ++i)
      d[(row + i / 2 % 2 * 8) * kColumns + i / 4 * 8 + column + i % 2] = sums[i];
  };
  expect_success(memory_, kWarpgroup, kernel);
  for (u32 row = 0; row < kRows; ++row)
    for (u32 column = 0; column < kColumns; ++column) {
      int sum = 0;
      for (u32 k = 0; k < depth; ++k) sum += a_at(row, k) * b_at(k, column);
      ASSERT_EQ(d[row * kColumns + column], sum) << row << ", " << column;
    }
}

// With 32-byte lines a box of 16 elements is one step deep.
INSTANTIATE_TEST_SUITE_P(
    All, Layouts,
    testing::Values(Layout{Swizzle::kNone, false, false}, Layout{Swizzle::k32, false, false},
                    Layout{Swizzle::k64, false, true}, Layout{Swizzle::k128, false, false},
                    Layout{Swizzle::kNone, true, true}, Layout{Swizzle::k32, true, false},
                    Layout{Swizzle::k64, true, false}, Layout{Swizzle::k128, true, true}));

// ---- What a kernel must not forget, on zeros of 16 rows of depth: shared memory is [128][16] for
// b.

class WarpgroupRules : public testing::Test {
 protected:
  static constexpr u32 kA = kBase, kB = kBase + 4096;

  // Zeros in the plain layout: 8 x 8 elements are 128 contiguous bytes.
  static void fill(bool fence = true) {
    for (u32 i = thread_index(); i < 512; i += 128) store_shared_16(kA + 16 * i, {});
    if (fence) fence_async_shared();
    sync_block();
  }
  static u64 a() { return descriptor(kA, 128, 256, Swizzle::kNone); }
  static u64 b() { return descriptor(kB, 128, 256, Swizzle::kNone); }

  Memory memory_;
  std::span<float> out_ = memory_.allocate<float>(128, "out");
};

TEST_F(WarpgroupRules, accumulators_are_nan_until_the_wait) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    launch(memory_, kWarpgroup, {.seed = seed}, [&] {
      fill();
      float d[64] = {};
      warpgroup_fence();
      warpgroup_multiply<Bf16>(d, a(), b(), true);
      warpgroup_commit();
      const float early = *const_cast<volatile float*>(&d[3]);
      warpgroup_wait<0>(d);
      if (thread_index() == 0) {
        out_[0] = early;
        out_[1] = *const_cast<volatile float*>(&d[3]);
      }
    });
    EXPECT_TRUE(std::isnan(out_[0]));
    EXPECT_EQ(out_[1], 0);
  }
}

TEST_F(WarpgroupRules, registers_are_fenced_before_the_first_product) {
  expect_report(memory_, kWarpgroup, "no warpgroup_fence() before the first product", [&] {
    fill();
    float d[64];
    warpgroup_multiply<Bf16>(d, a(), b(), false);
  });
  expect_report(memory_, kWarpgroup, "the accumulators changed since the last warpgroup_fence()",
                [&] {
                  fill();
                  float d[64] = {};
                  for (int i = 0; i < 2; ++i) {
                    if (i == 0) warpgroup_fence();
                    warpgroup_multiply<Bf16>(d, a(), b(), true);
                    warpgroup_commit();
                    warpgroup_wait<0>(d);
                    const_cast<volatile float&>(d[5]) = 1;
                  }
                });
}

TEST_F(WarpgroupRules, registers_may_change_before_a_fence) {
  expect_success(memory_, kWarpgroup, [&] {
    fill();
    float d[64] = {};
    for (int i = 0; i < 2; ++i) {
      const_cast<volatile float&>(d[5]) = static_cast<float>(i);
      warpgroup_fence();
      warpgroup_multiply<Bf16>(d, a(), b(), true);
      warpgroup_commit();
      warpgroup_wait<0>(d);
    }
  });
}

TEST_F(WarpgroupRules, accumulators_need_no_fence_after_a_product) {
  expect_success(memory_, kWarpgroup, [&] {
    const u32 ones = Bf16::pack(1, 1);
    for (u32 i = thread_index(); i < 512; i += 128)
      store_shared_16(kA + 16 * i, {ones, ones, ones, ones});
    fence_async_shared();
    sync_block();
    float d[64] = {};
    warpgroup_fence();
    for (int i = 0; i < 2; ++i) {
      warpgroup_multiply<Bf16>(d, a(), b(), true);
      warpgroup_commit();
      warpgroup_wait<0>(d);
    }
  });
}

TEST_F(WarpgroupRules, registers_in_flight_are_not_written) {
  expect_report(memory_, kWarpgroup, "wrote to accumulators in flight", [&] {
    fill();
    float d[64] = {};
    warpgroup_fence();
    warpgroup_multiply<Bf16>(d, a(), b(), true);
    warpgroup_commit();
    const_cast<volatile float&>(d[5]) = 1;
    warpgroup_wait<0>(d);
  });
  // With an early product the change comes after the read, and only the GPU could tell.
  EXPECT_THAT(report_of(memory_, kWarpgroup, {},
                        [&] {
                          fill();
                          float d[64];
                          u32 r[4] = {};
                          warpgroup_fence();
                          warpgroup_multiply_registers<Bf16>(d, r, b(), false);
                          warpgroup_commit();
                          const_cast<volatile u32&>(r[2]) = 1;
                          warpgroup_wait<0>(d);
                        }),
              testing::HasSubstr("changed registers of a that a product in flight reads"));
}

TEST_F(WarpgroupRules, operands_are_fenced_and_not_overwritten) {
  const auto kernel = [&](bool fence, bool wait) {
    fill(fence);
    float d[64];
    warpgroup_fence();
    warpgroup_multiply<Bf16>(d, a(), b(), false);
    warpgroup_commit();
    if (wait) warpgroup_wait<0>(d);
    sync_block();
    fill();
    if (!wait) warpgroup_wait<0>(d);
  };
  expect_success(memory_, kWarpgroup, [&] { kernel(true, true); });
  expect_report(memory_, kWarpgroup, "after the write by warp", [&] { kernel(false, true); });
  expect_report(memory_, kWarpgroup, "race on byte", [&] { kernel(true, false); });
}

TEST_F(WarpgroupRules, every_operand_is_fenced) {
  for (const u32 unfenced : {kA, kB})
    expect_report(memory_, kWarpgroup, "its wgmma.mma_async", [&] {
      fill();
      store_shared_16(unfenced + 16 * thread_index(), {});
      sync_block();
      float d[64];
      warpgroup_fence();
      warpgroup_multiply<Bf16>(d, a(), b(), false);
      warpgroup_commit();
      warpgroup_wait<0>(d);
    });
}

TEST_F(WarpgroupRules, operands_are_read_between_issue_and_wait) {
  // b becomes NaN after the issue; who reads early does not see it.
  for (const uint64_t seed : {0, 2}) {
    launch(memory_, kWarpgroup, {.seed = seed, .check_order = false}, [&] {
      fill();
      float d[64];
      warpgroup_fence();
      warpgroup_multiply<Bf16>(d, a(), b(), false);
      warpgroup_commit();
      sync_block();
      const u32 nan = 0x7FFF7FFF;
      store_shared_16(kB + 16 * thread_index(), {nan, nan, nan, nan});
      sync_block();
      warpgroup_wait<0>(d);
      if (thread_index() == 0) out_[0] = d[0];
    });
    EXPECT_EQ(std::isnan(out_[0]), seed == 0);
  }
}

TEST_F(WarpgroupRules, operands_are_read_anew) {
  // 1 x 1 + 1 x 2 everywhere: a is all ones, b ones and then twos.
  const u32 ones = Bf16::pack(1, 1), twos = Bf16::pack(2, 2);
  expect_success(memory_, kWarpgroup, [&] {
    const auto store = [](u32 to, u32 quads, u32 x) {
      for (u32 i = thread_index(); i < quads; i += 128) store_shared_16(to + 16 * i, {x, x, x, x});
      fence_async_shared();
      sync_block();
    };
    float d[64] = {};
    store(kA, 128, ones);
    for (const u32 x : {ones, twos}) {
      store(kB, 256, x);
      warpgroup_fence();
      warpgroup_multiply<Bf16>(d, a(), b(), true);
      warpgroup_commit();
      warpgroup_wait<0>(d);
      sync_block();
    }
    out_[thread_index()] = d[17];
  });
  EXPECT_THAT(out_, testing::Each(16.f * 3));
}

TEST_F(WarpgroupRules, a_wait_covers_all_but_the_youngest_groups) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    launch(memory_, kWarpgroup, {.seed = seed}, [&] {
      fill();
      float first[64], second[64];
      warpgroup_fence();
      warpgroup_multiply<Bf16>(first, a(), b(), false);
      warpgroup_commit();
      warpgroup_multiply<Bf16>(second, a(), b(), false);
      warpgroup_commit();
      warpgroup_wait<1>(first);
      const float seen[2] = {const_cast<volatile float&>(first[0]),
                             const_cast<volatile float&>(second[0])};
      warpgroup_wait<0>(second);
      if (thread_index() != 0) return;
      out_[0] = seen[0];
      out_[1] = seen[1];
    });
    EXPECT_EQ(out_[0], 0) << "seed " << seed;
    EXPECT_TRUE(std::isnan(out_[1])) << "seed " << seed;
  }
}

TEST_F(WarpgroupRules, operands_are_ordered_for_every_lane) {
  // A fifth warp stores zeros; of each warp that multiplies, one lane or all wait for it.
  const Launch five_warps = {.grid = {}, .threads = 160, .shared_bytes = 32 << 10};
  const auto kernel = [&](bool all_lanes) {
    const u32 barrier = kBase + 16384;
    if (thread_index() == 0) {
      barrier_init(barrier, 32);
      fence_barrier_init();
    }
    sync_block();
    if (warp_index() == 4) {
      for (u32 i = lane_index(); i < 512; i += 32) store_shared_16(kA + 16 * i, {});
      fence_async_shared();
      return barrier_arrive(barrier);
    }
    if (all_lanes || lane_index() == 0) barrier_wait(barrier, 0);
    shuffle(1, 0);  // tells the other lanes, but orders nothing
    float d[64];
    warpgroup_fence();
    warpgroup_multiply<Bf16>(d, a(), b(), false);
    warpgroup_commit();
    warpgroup_wait<0>(d);
  };
  expect_success(memory_, five_warps, [&] { kernel(true); });
  for (uint64_t seed = 0; seed < 6; ++seed)
    EXPECT_THAT(report_of(memory_, five_warps, {.seed = seed}, [&] { kernel(false); }),
                testing::ContainsRegex("after the write by warp 4|never written"));
}

TEST_F(WarpgroupRules, loads_are_waited_for_by_every_lane) {
  const std::span<u16> matrix = memory_.allocate<u16>(64 * 64, "matrix");
  std::fill(matrix.begin(), matrix.end(), 0);
  const uint64_t dims[] = {64, 64}, strides[] = {128};
  const uint32_t box[] = {64, 64};
  const auto encoded =
      emulator::encode_tensor_map(memory_, {matrix.data(), 2, dims, strides, box, Swizzle::k128});
  const auto kernel = [&](bool all_lanes) {
    alignas(64) TensorMap map = {};
    std::memcpy(&map, &encoded, sizeof encoded);
    const u32 barrier = kBase + 16384;
    fill();
    if (thread_index() == 0) {
      const int at[5] = {};
      barrier_init(barrier, 1);
      fence_barrier_init();
      barrier_expect(barrier, 8192);
      load_tensor(kB, map, barrier, at, kEvictLast);
    }
    sync_block();
    if (all_lanes || lane_index() == 0) barrier_wait(barrier, 0);
    shuffle(1, 0);  // tells the other lanes, but orders nothing
    float d[64];
    warpgroup_fence();
    warpgroup_multiply<Bf16>(d, a(), b(), false);
    warpgroup_commit();
    warpgroup_wait<0>(d);
  };
  expect_success(memory_, kWarpgroup, [&] { kernel(true); });
  expect_report(memory_, kWarpgroup, "race on byte", [&] { kernel(false); });
}

TEST_F(WarpgroupRules, products_are_waited_for) {
  expect_report(memory_, kWarpgroup, "no wait covers the products in flight", [&] {
    fill();
    float d[64];
    warpgroup_fence();
    warpgroup_multiply<Bf16>(d, a(), b(), false);
    warpgroup_commit();
    warpgroup_wait<1>(d);
  });
}

TEST_F(WarpgroupRules, all_threads_issue_the_same) {
  expect_report(memory_, kWarpgroup, "the warps of the warpgroup issue different products", [&] {
    fill();
    float d[64];
    warpgroup_fence();
    warpgroup_multiply<Bf16>(d, a(), warp_index() == 2 ? a() : b(), false);
    warpgroup_commit();
    warpgroup_wait<0>(d);
  });
  expect_report(memory_, kWarpgroup, "the lanes issue different products", [&] {
    fill();
    float d[64];
    warpgroup_fence();
    warpgroup_multiply<Bf16>(d, a(), b(), lane_index() == 3);
    warpgroup_commit();
    warpgroup_wait<0>(d);
  });
  expect_report(memory_, kWarpgroup, "100 registers, must be a multiple of 8",
                [] { grow_registers<100>(); });
}

}  // namespace
}  // namespace rapt::device
