// ldmatrix, stmatrix and mma.sync lane by lane, against the figures and formulas of the PTX ISA.
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "core/float16.hpp"
#include "ptx/copy.cuh"
#include "ptx/matrix.cuh"
#include "ptx/threads.cuh"
#include "unit/emulator/run.hpp"

namespace rapt::device {
namespace {

constexpr u32 kBase = 1024;

// ---- ldmatrix

class LoadMatrices : public testing::Test {
 protected:
  // Every 16-bit element of shared memory is its own index; lane i points at row rows_[i].
  LoadMatrices() {
    for (u32 i = 0; i < 32; ++i) rows_[i] = i * 11 % 64;
  }
  void run(bool transposed) {
    launch(memory_, kOneWarp, {}, [&] {
      u32* words = shared_base<u32>();
      for (u32 i = lane_index(); i < 256; i += 32) words[i] = 2 * i | (2 * i + 1) << 16;
      sync_block();
      u32 r[4];
      const u32 address = kBase + 16 * rows_[lane_index()];
      if (transposed)
        load_matrices_transposed(r, address);
      else
        load_matrices(r, address);
      for (u32 i = 0; i < 4; ++i) registers_[4 * lane_index() + i] = r[i];
    });
  }
  // Element (row, column) of a matrix, which is in the lane and register half that the figure
  // shows.
  u32 element(u32 matrix, u32 row, u32 column) const {
    const u32 lane = row * 4 + column / 2;
    return registers_[4 * lane + matrix] >> (16 * (column % 2)) & 0xFFFF;
  }

  Memory memory_;
  std::span<u32> rows_ = memory_.allocate<u32>(32, "rows");
  std::span<u32> registers_ = memory_.allocate<u32>(128, "registers");
};

TEST_F(LoadMatrices, gives_each_lane_two_neighbours_of_a_row) {
  run(false);
  for (u32 matrix = 0; matrix < 4; ++matrix)
    for (u32 row = 0; row < 8; ++row)
      for (u32 column = 0; column < 8; ++column)
        EXPECT_EQ(element(matrix, row, column), rows_[8 * matrix + row] * 8 + column);
}

TEST_F(LoadMatrices, gives_each_lane_two_neighbours_of_a_column_when_transposed) {
  run(true);
  for (u32 matrix = 0; matrix < 4; ++matrix)
    for (u32 row = 0; row < 8; ++row)
      for (u32 column = 0; column < 8; ++column)
        EXPECT_EQ(element(matrix, row, column), rows_[8 * matrix + column] * 8 + row);
}

TEST_F(LoadMatrices, refuses_wrong_addresses) {
  expect_report(memory_, kOneWarp, "byte 8 of shared memory is not aligned to 16 bytes", [&] {
    store_shared_16(kBase + 16 * lane_index(), {});
    u32 r[4];
    load_matrices(r, kBase + 16 * lane_index() - (lane_index() == 5 ? 72 : 0));
  });
  expect_report(memory_, kOneWarp, "byte 4096 is outside the 4096 bytes", [&] {
    for (u32 i = 0; i < 8; ++i) store_shared_16(kBase + 16 * (lane_index() + 32 * i), {});
    u32 r[4];
    load_matrices(r, kBase + (lane_index() == 31 ? 4096 : 16 * lane_index()));
  });
  expect_report(memory_, kOneWarp, "reads byte 512 of shared memory, which was never written", [&] {
    store_shared_16(kBase + 16 * lane_index(), {});
    sync_warp();
    u32 r[4];
    load_matrices(r, kBase + 16 * (lane_index() + 1));
  });
}

TEST_F(LoadMatrices, needs_the_writes_of_other_lanes_to_be_ordered) {
  const auto kernel = [&](bool sync) {
    store_shared_16(kBase + 16 * lane_index(), {});
    if (sync) sync_warp();
    u32 r[4];
    load_matrices(r, kBase + 16 * (lane_index() ^ 1));
  };
  expect_success(memory_, kOneWarp, [&] { kernel(true); });
  expect_report(memory_, kOneWarp, "race on byte", [&] { kernel(false); });
}

TEST_F(LoadMatrices, is_executed_by_all_lanes_from_one_line) {
  expect_report(memory_, kOneWarp, "meets ldmatrix", [&] {
    store_shared_16(kBase + 16 * lane_index(), {});
    u32 r[4];
    if (lane_index() < 16)
      load_matrices(r, kBase + 16 * lane_index());
    else
      load_matrices(r, kBase + 16 * lane_index());
  });
}

// ---- stmatrix

TEST(StoreMatrices, takes_two_neighbours_of_a_row_from_each_lane) {
  Memory memory;
  const std::span<u32> words = memory.allocate<u32>(128, "words");
  expect_success(memory, kOneWarp, [words] {
    u32 r[4];
    // Register i holds elements (row, column) and (row, column + 1) of matrix i, which are
    // 100 i + 10 row + column.
    const u32 row = lane_index() / 4, column = lane_index() % 4 * 2;
    for (u32 i = 0; i < 4; ++i)
      r[i] = (100 * i + 10 * row + column) | (100 * i + 10 * row + column + 1) << 16;
    store_matrices(kBase + 16 * (31 - lane_index()), r);
    sync_warp();
    for (u32 i = lane_index(); i < 128; i += 32) words[i] = load_shared_4(kBase + 4 * i);
  });
  for (u32 line = 0; line < 32; ++line)
    for (u32 column = 0; column < 8; ++column) {
      const u32 matrix = (31 - line) / 8, row = (31 - line) % 8;
      EXPECT_EQ(u16(words[line * 4 + column / 2] >> (16 * (column % 2))),
                100 * matrix + 10 * row + column);
    }
}

// ---- mma.sync.m16n8k16. Rows and columns of the elements that a lane holds, as PTX ISA gives
// them.

struct Place {
  u32 row, column;
};
Place place_of_a(u32 lane, u32 i) {
  const u32 group = lane >> 2, in_group = lane % 4;
  return {i < 2 || (4 <= i && i < 6) ? group : group + 8,
          i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8};
}
Place place_of_b(u32 lane, u32 i) {
  const u32 group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8, group};
}
Place place_of_d(u32 lane, u32 i) {
  const u32 group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
}

constexpr u32 kColumns = 3;  // 8 x 8 fragments in a row

// d = a b + c of random numbers, computed by the emulated instruction and in double.
template <class Element>
class Multiply : public testing::Test {
 protected:
  Multiply() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (u16& x : a_) x = narrow(normal(random));
    for (u16& x : b_) x = narrow(normal(random));
    for (float& x : d_) x = normal(random);
    c_.assign(d_.begin(), d_.end());
  }
  static u16 narrow(float x) {
    return std::is_same_v<Element, Bf16> ? float_to_bfloat16(x) : float_to_float16(x);
  }
  static double widen(u16 x) {
    return std::is_same_v<Element, Bf16> ? bfloat16_to_float(x) : float16_to_float(x);
  }

  void run(bool as_row) {
    launch(memory_, kOneWarp, {}, [&] {
      u32 a[4], b[kColumns][2];
      float d[kColumns][4];
      const u32 lane = lane_index();
      for (u32 i = 0; i < 8; i += 2) {
        const Place at = place_of_a(lane, i), next = place_of_a(lane, i + 1);
        a[i / 2] = a_[at.row * 16 + at.column] | a_[next.row * 16 + next.column] << 16;
      }
      for (u32 n = 0; n < kColumns; ++n) {
        for (u32 i = 0; i < 4; i += 2) {
          const Place at = place_of_b(lane, i), next = place_of_b(lane, i + 1);
          b[n][i / 2] = b_[at.row * 8 * kColumns + n * 8 + at.column] |
                        b_[next.row * 8 * kColumns + n * 8 + next.column] << 16;
        }
        for (u32 i = 0; i < 4; ++i) d[n][i] = d_[index_of_d(lane, n, i)];
      }
      if (as_row)
        multiply_row<Element, kColumns>(d, a, b);
      else
        for (u32 n = 0; n < kColumns; ++n) multiply_16x8x16<Element>(d[n], a, b[n]);
      for (u32 n = 0; n < kColumns; ++n)
        for (u32 i = 0; i < 4; ++i) d_[index_of_d(lane, n, i)] = d[n][i];
    });
  }
  static u32 index_of_d(u32 lane, u32 n, u32 i) {
    const Place at = place_of_d(lane, i);
    return at.row * 8 * kColumns + n * 8 + at.column;
  }
  void expect_product() const {
    for (u32 row = 0; row < 16; ++row)
      for (u32 column = 0; column < 8 * kColumns; ++column) {
        const u32 at = row * 8 * kColumns + column;
        double sum = c_[at], magnitude = std::abs(sum);
        for (u32 k = 0; k < 16; ++k) {
          const double term = widen(a_[row * 16 + k]) * widen(b_[k * 8 * kColumns + column]);
          sum += term;
          magnitude += std::abs(term);
        }
        // Sixteen sums are rounded.
        EXPECT_NEAR(d_[at], sum, 16 * 0x1p-24 * magnitude) << row << ", " << column;
      }
  }

  Memory memory_;
  std::span<u16> a_ = memory_.allocate<u16>(16 * 16, "a");
  std::span<u16> b_ = memory_.allocate<u16>(16 * 8 * kColumns, "b");
  std::span<float> d_ = memory_.allocate<float>(16 * 8 * kColumns, "d");
  std::vector<float> c_;
};
using Elements = testing::Types<Bf16, F16>;
TYPED_TEST_SUITE(Multiply, Elements);

TYPED_TEST(Multiply, adds_the_product_to_the_accumulators) {
  this->run(false);
  this->expect_product();
}

TYPED_TEST(Multiply, does_a_row_of_products_in_one_meeting) {
  this->run(true);
  this->expect_product();
}

TYPED_TEST(Multiply, keeps_a_nan_in_its_row) {
  this->a_[5 * 16 + 9] = 0x7FFF;
  this->run(true);
  for (u32 i = 0; i < this->d_.size(); ++i)
    EXPECT_EQ(std::isnan(this->d_[i]), i / (8 * kColumns) == 5) << i;
}

TEST(MultiplyMeeting, needs_all_lanes) {
  Memory memory;
  expect_report(memory, kOneWarp, "meets mma.sync", [] {
    const u32 a[4] = {}, b[2] = {};
    float d[4] = {};
    if (lane_index() != 7) multiply_16x8x16<Bf16>(d, a, b);
    sync_warp();
  });
}

}  // namespace
}  // namespace rapt::device
