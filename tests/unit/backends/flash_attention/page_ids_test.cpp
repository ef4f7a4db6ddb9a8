#include "backends/flash_attention/page_ids.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace rapt::flash_attention {
namespace {

using testing::ElementsAre;

constexpr int32_t kPageSize = 16, kWidth = 3;

// Of requests with so many keys; request b's row is 10 b, 10 b + 1, ...
struct Staged {
  Staged(const std::vector<int32_t>& kv_len, int64_t row_stride) {
    const auto rows = static_cast<int64_t>(kv_len.size());
    std::vector<int32_t> table(static_cast<size_t>(rows * row_stride), -1);
    for (int64_t b = 0; b < rows; b++)
      for (int32_t i = 0; i < kWidth; i++)
        table[b * row_stride + i] = static_cast<int32_t>(10 * b) + i;
    Batch batch;
    batch.kv_len = kv_len;
    batch.page_table =
        TensorView::strided(table.data(), DType::kInt32, {rows, kWidth}, {row_stride, 1});
    ids.resize(static_cast<size_t>(num_page_ids(batch, kPageSize)));
    stage_page_ids(batch, kPageSize, ids.data());
  }
  std::vector<int> ids;
};

TEST(PageIds, are_those_that_the_lengths_read) {
  const Staged staged({17, 0, 48, 1}, kWidth);
  EXPECT_THAT(staged.ids, ElementsAre(0, 1, 20, 21, 22, 30));
}

TEST(PageIds, of_whole_rows_are_all_of_the_table) {
  const Staged staged({48, 33, 48, 16}, kWidth);
  EXPECT_THAT(staged.ids, ElementsAre(0, 1, 2, 10, 11, 12, 20, 21, 22, 30));
}

TEST(PageIds, behind_a_row_are_not_the_next_rows) {
  const Staged staged({48, 48}, kWidth + 2);
  EXPECT_THAT(staged.ids, ElementsAre(0, 1, 2, 10, 11, 12));
}

TEST(PageIds, may_be_none) {
  EXPECT_THAT(Staged({0, 0}, kWidth).ids, ElementsAre());
  EXPECT_THAT(Staged({0, 0, 16}, kWidth).ids, ElementsAre(20));
}

}  // namespace
}  // namespace rapt::flash_attention
