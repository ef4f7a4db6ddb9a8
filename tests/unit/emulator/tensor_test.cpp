// Tensor copies (TMA) and the proxy fences they need.
#include <cstring>
#include <numeric>

#include "emulator/tensor_map.hpp"
#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "ptx/tensor.cuh"
#include "ptx/threads.cuh"
#include "rapt/error.hpp"
#include "unit/emulator/run.hpp"

namespace rapt::device {
namespace {

using emulator::Swizzle;

constexpr u32 kBase = 1024, kBarrier = kBase + 8192;
constexpr Launch kShape = {.grid = {}, .threads = 64, .shared_bytes = 8192 + 64};

// Two slices of seven rows of 40 elements, which are their own indices, from 1.
class Tensors : public testing::Test {
 protected:
  static constexpr u32 kColumns = 40, kRows = 7, kSlices = 2, kBoxColumns = 32, kBoxRows = 4;
  static constexpr u32 kBoxBytes = kBoxColumns * kBoxRows * sizeof(u16);

  Tensors() { std::iota(tensor_.begin(), tensor_.end(), u16{1}); }

  TensorMap map_of(std::span<u16> tensor, Swizzle swizzle = Swizzle::kNone) {
    const uint64_t dims[] = {kColumns, kRows, kSlices};
    const uint64_t strides[] = {kColumns * 2, kColumns * kRows * 2};
    const uint32_t box[] = {kBoxColumns, kBoxRows, 1};
    const auto encoded = emulator::encode_tensor_map(
        memory_, {tensor.data(), sizeof(u16), dims, strides, box, swizzle});
    TensorMap map = {};
    std::memcpy(&map, &encoded, sizeof encoded);
    return map;
  }
  static void init() {
    if (thread_index() == 0) {
      barrier_init(kBarrier, 1);
      fence_barrier_init();
    }
    sync_block();
  }
  static void load(const TensorMap& map, int column, int row, int slice, u32 to = kBase) {
    if (thread_index() != 0) return;
    const int at[5] = {column, row, slice};
    barrier_expect(kBarrier, kBoxBytes);
    load_tensor(to, map, kBarrier, at, kEvictFirst);
  }
  u16 element(int column, int row, int slice) const {
    const bool inside = column >= 0 && column < int(kColumns) && row >= 0 && row < int(kRows);
    return inside ? tensor_[(slice * kRows + row) * kColumns + column] : 0;
  }

  Memory memory_;
  std::span<u16> tensor_ = memory_.allocate<u16>(kColumns * kRows * kSlices, "tensor");
  std::span<u16> out_ = memory_.allocate<u16>(kColumns * kRows * kSlices, "out");
  std::span<u32> words_ = memory_.allocate<u32>(256, "words");
};

TEST_F(Tensors, are_loaded_with_zeros_where_they_end) {
  const TensorMap map = map_of(tensor_);
  for (const auto& [column, row] : {std::pair{0, 0}, {8, 3}, {16, 5}, {-8, -2}, {40, 0}}) {
    expect_success(memory_, kShape, [&, column = column, row = row] {
      alignas(64) const TensorMap parameter = map;
      init();
      load(parameter, column, row, 1);
      barrier_wait(kBarrier, 0);
      store_global_4(&words_[thread_index()], load_shared_4(kBase + 4 * thread_index()));
    });
    for (u32 i = 0; i < kBoxColumns * kBoxRows; ++i)
      EXPECT_EQ(u16(words_[i / 2] >> (16 * (i % 2))),
                element(column + i % kBoxColumns, row + i / kBoxColumns, 1))
          << column << ", " << row << ": " << i;
  }
}

TEST_F(Tensors, are_swizzled) {
  // All 14 rows of both slices as one matrix, in boxes one swizzled line wide.
  for (const auto& [swizzle, chunks] :
       {std::pair{Swizzle::kNone, 4u}, {Swizzle::k32, 2u}, {Swizzle::k64, 4u}}) {
    constexpr u32 kAllRows = kRows * kSlices;
    const uint64_t dims[] = {kColumns, kAllRows}, strides[] = {kColumns * 2};
    const uint32_t box[] = {chunks * 8, kAllRows};
    const auto encoded = emulator::encode_tensor_map(
        memory_, {tensor_.data(), sizeof(u16), dims, strides, box, swizzle});
    const u32 num_words = chunks * 4 * kAllRows;
    expect_success(memory_, kShape, [&, chunks = chunks] {
      alignas(64) TensorMap map = {};
      std::memcpy(&map, &encoded, sizeof encoded);
      init();
      if (thread_index() == 0) {
        const int at[5] = {8};
        barrier_expect(kBarrier, num_words * 4);
        load_tensor(kBase, map, kBarrier, at, kEvictFirst);
      }
      barrier_wait(kBarrier, 0);
      for (u32 i = thread_index(); i < num_words; i += 64)
        store_global_4(&words_[i], load_shared_4(kBase + 4 * i));
    });
    // 16-byte chunks of lines; the pattern has a step every 128 bytes, and as many as a line has
    // chunks.
    for (u32 row = 0; row < kAllRows; ++row)
      for (u32 chunk = 0; chunk < chunks; ++chunk) {
        const u32 step = swizzle == Swizzle::kNone ? 0 : row * chunks * 16 / 128 % chunks;
        EXPECT_EQ(u16(words_[(row * chunks + (chunk ^ step)) * 4]),
                  tensor_[row * kColumns + 8 + chunk * 8])
            << chunks << " chunks, row " << row << ", chunk " << chunk;
      }
  }
}

TEST_F(Tensors, land_late_at_random_or_at_once) {
  const TensorMap map = map_of(tensor_);
  int there = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Options options = {.seed = seed, .check_order = false};
    launch(memory_, kShape, options, [&] {
      alignas(64) const TensorMap parameter = map;
      init();
      load(parameter, 0, 0, 0);
      sync_block();
      if (thread_index() == 0) words_[0] = load_shared_4(kBase);
      barrier_wait(kBarrier, 0);
      if (thread_index() == 0) words_[1] = load_shared_4(kBase);
    });
    EXPECT_EQ(words_[1], 0x00020001u);
    if (seed % 3 != 1) {
      EXPECT_EQ(words_[0], seed % 3 == 0 ? 0xFFFFFFFF : words_[1]) << "seed " << seed;
    }
    there += words_[0] == words_[1];
  }
  EXPECT_GT(there, 10);  // of them ten early ones
}

TEST_F(Tensors, need_a_wait_before_they_are_read) {
  const TensorMap map = map_of(tensor_);
  for (uint64_t seed = 0; seed < 6; ++seed)
    EXPECT_THAT(report_of(memory_, kShape, {.seed = seed},
                          [&] {
                            alignas(64) const TensorMap parameter = map;
                            init();
                            load(parameter, 0, 0, 0);
                            load_shared_4(kBase);
                            barrier_wait(kBarrier, 0);
                          }),
                testing::ContainsRegex("never written|after the write by a tensor load"));
}

TEST_F(Tensors, need_a_proxy_fence_after_ordinary_stores) {
  const TensorMap map = map_of(tensor_);
  const auto kernel = [&](bool fence) {
    alignas(64) const TensorMap parameter = map;
    store_shared_4(kBase + 4 * thread_index(), 0);
    if (fence) fence_async_shared();
    init();
    load(parameter, 0, 0, 0);
    barrier_wait(kBarrier, 0);
  };
  expect_success(memory_, kShape, [&] { kernel(true); });
  expect_report(memory_, kShape, "after the write by warp", [&] { kernel(false); });
}

TEST_F(Tensors, need_a_proxy_fence_after_their_own_threads_stores_and_copies) {
  const TensorMap map = map_of(tensor_);
  const auto kernel = [&](bool copy, bool fence) {
    alignas(64) const TensorMap parameter = map;
    init();
    if (thread_index() == 0 && !copy) store_shared_4(kBase, 0);
    if (thread_index() == 0 && copy) {
      copy_async_16(kBase, tensor_.data(), 0);
      copy_async_commit();
      copy_async_wait<0>();
    }
    if (fence) fence_async_shared();
    load(parameter, 0, 0, 0);
    barrier_wait(kBarrier, 0);
  };
  for (const bool copy : {false, true}) {
    expect_success(memory_, kShape, [&] { kernel(copy, true); });
    expect_report(memory_, kShape, "race on byte 0", [&] { kernel(copy, false); });
  }
}

TEST_F(Tensors, may_not_be_loaded_twice_to_one_place_without_a_wait) {
  const TensorMap map = map_of(tensor_);
  // More loads than there are agents of them, so that some share one.
  expect_report(memory_, kShape, "after the write by a tensor load", [&] {
    alignas(64) const TensorMap parameter = map;
    if (thread_index() == 0) {
      barrier_init(kBarrier, 33);
      fence_barrier_init();
    }
    sync_block();
    load(parameter, 0, 0, 0);
    for (int i = 1; i < 32; ++i) load(parameter, 0, 0, 0, kBase + 256 * (i % 31 + 1));
    load(parameter, 0, 0, 0);
    barrier_wait(kBarrier, 0);
  });
}

TEST_F(Tensors, may_be_fenced_by_the_thread_that_loads) {
  const TensorMap map = map_of(tensor_);
  expect_success(memory_, kShape, [&] {
    alignas(64) const TensorMap parameter = map;
    store_shared_4(kBase + 4 * thread_index(), 0);
    init();
    fence_async_shared();
    load(parameter, 0, 0, 0);
    barrier_wait(kBarrier, 0);
  });
}

TEST_F(Tensors, may_land_before_what_their_thread_reads_next) {
  const TensorMap map = map_of(tensor_);
  expect_report(memory_, kShape, "race on byte", [&] {
    alignas(64) const TensorMap parameter = map;
    store_shared_4(kBase + 4 * thread_index(), 0);
    fence_async_shared();
    init();
    load(parameter, 0, 0, 0);
    if (thread_index() == 0) load_shared_4(kBase);
    barrier_wait(kBarrier, 0);
  });
}

TEST_F(Tensors, land_in_parts_when_mixed) {
  const TensorMap map = map_of(tensor_);
  int in_parts = 0;
  for (uint64_t seed = 1; seed < 120; seed += 3) {
    launch(memory_, kShape, {.seed = seed, .check_order = false}, [&] {
      alignas(64) const TensorMap parameter = map;
      init();
      load(parameter, 0, 0, 0);
      if (warp_index() == 1) {
        words_[0] = load_shared_4(kBase);
        words_[1] = load_shared_4(kBase + (kBoxRows - 1) * kBoxColumns * 2);
      }
      barrier_wait(kBarrier, 0);
    });
    in_parts += words_[0] != 0xFFFFFFFF && words_[1] == 0xFFFFFFFF;
  }
  EXPECT_GT(in_parts, 0);
}

TEST_F(Tensors, are_stored_where_they_are) {
  const TensorMap map = map_of(out_);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    std::fill(out_.begin(), out_.end(), u16{0});
    launch(memory_, kShape, {.seed = seed}, [&] {
      alignas(64) const TensorMap parameter = map;
      store_shared_4(kBase + 4 * thread_index(),
                     (2 * thread_index() + 1) << 16 | 2 * thread_index());
      fence_async_shared();
      sync_block();
      if (thread_index() != 0) return;
      const int at[5] = {16, 5, 1};
      store_tensor(parameter, kBase, at);
      store_tensor_commit();
      store_tensor_wait_read<0>();
    });
    for (u32 i = 0; i < out_.size(); ++i) {
      const u32 column = i % kColumns, row = i / kColumns % kRows, slice = i / kColumns / kRows;
      const bool inside = slice == 1 && row >= 5 && column >= 16;
      EXPECT_EQ(out_[i], inside ? (row - 5) * kBoxColumns + column - 16 : 0) << i;
    }
  }
}

TEST_F(Tensors, need_fences_and_waits_around_a_store) {
  const TensorMap map = map_of(out_);
  const auto kernel = [&](bool fence, bool wait) {
    alignas(64) const TensorMap parameter = map;
    store_shared_4(kBase + 4 * thread_index(), 0);
    if (fence) fence_async_shared();
    sync_block();
    if (thread_index() == 0) {
      const int at[5] = {};
      store_tensor(parameter, kBase, at);
      store_tensor_commit();
      if (wait) store_tensor_wait_read<0>();
    }
    sync_block();
    store_shared_4(kBase + 4 * thread_index(), 1);
    if (thread_index() == 0) store_tensor_wait_read<0>();
  };
  expect_success(memory_, kShape, [&] { kernel(true, true); });
  expect_report(memory_, kShape, "after the write by warp", [&] { kernel(false, true); });
  expect_report(memory_, kShape, "race on byte", [&] { kernel(true, false); });
}

TEST_F(Tensors, must_have_been_read_when_the_block_ends) {
  const TensorMap map = map_of(out_);
  EXPECT_THAT(report_of(memory_, kShape, {},
                        [&] {
                          alignas(64) const TensorMap parameter = map;
                          store_shared_4(kBase + 4 * thread_index(), 0);
                          fence_async_shared();
                          sync_block();
                          if (thread_index() != 0) return;
                          const int at[5] = {};
                          store_tensor(parameter, kBase, at);
                          store_tensor_commit();
                        }),
              testing::HasSubstr("no wait covers its cp.async.bulk.tensor.global"));
}

TEST_F(Tensors, need_a_map_and_an_aligned_place) {
  const TensorMap map = map_of(tensor_);
  expect_report(memory_, kShape, "this is no tensor map", [] {
    alignas(64) const TensorMap nothing = {};
    init();
    load(nothing, 0, 0, 0);
  });
  expect_report(memory_, kShape, "byte 64 of shared memory is not aligned to 128 bytes", [&] {
    alignas(64) const TensorMap parameter = map;
    init();
    load(parameter, 0, 0, 0, kBase + 64);
  });
}

TEST_F(Tensors, are_described_as_the_driver_wants) {
  const auto encode = [&](uint64_t rows, uint64_t stride, uint32_t box, Swizzle swizzle) {
    const uint64_t dims[] = {kColumns, rows}, strides[] = {stride};
    const uint32_t boxes[] = {box, 4};
    emulator::encode_tensor_map(memory_, {tensor_.data(), 2, dims, strides, boxes, swizzle});
  };
  EXPECT_NO_THROW(encode(14, 80, 32, Swizzle::k64));
  EXPECT_THROW(encode(15, 80, 32, Swizzle::k64), Error);    // past the allocation
  EXPECT_THROW(encode(14, 72, 32, Swizzle::k64), Error);    // stride
  EXPECT_THROW(encode(14, 80, 36, Swizzle::kNone), Error);  // box rows of 72 bytes
  EXPECT_THROW(encode(14, 80, 32, Swizzle::k32), Error);    // wider than the swizzle
}

}  // namespace
}  // namespace rapt::device
