// The check of page ids, as this processor does it and as any would.
#include "problem/page_ids.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace rapt {
namespace {

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();

// Rows shorter and longer than any vector, of pages of 4; what is behind their ids is no id.
struct Table {
  static constexpr int32_t kWidth = 150, kPageSize = 4;
  std::vector<int32_t> kv_len = {0, 1, 4, 5, 124, 128, 129, 256, 260, 595};
  std::vector<int32_t> ids = std::vector<int32_t>(kv_len.size() * kWidth, kMin);

  explicit Table(int32_t num_pages) {
    for (size_t b = 0; b < kv_len.size(); b++)
      for (int32_t i = 0; i < count(b); i++) id(b, i) = (i * 7919) % num_pages;
  }
  int32_t count(size_t b) const { return (kv_len[b] + kPageSize - 1) / kPageSize; }
  int32_t& id(size_t b, int32_t i) { return ids[b * kWidth + static_cast<size_t>(i)]; }
  bool passes(bool (*check)(const PageIds&, uint32_t), int32_t num_pages) const {
    return check({ids.data(), kWidth, kv_len, kPageSize}, static_cast<uint32_t>(num_pages));
  }
};

TEST(PageIds, any_id_outside_the_pool_is_seen_and_none_behind_the_lengths) {
  for (auto* check : {ids_in_pool, ids_in_pool_baseline}) {
    for (const int32_t num_pages : {1, 1000, kMax}) {
      Table table(num_pages);
      ASSERT_TRUE(table.passes(check, num_pages));
      for (size_t b = 0; b < table.kv_len.size(); b++) {
        for (int32_t i = 0; i < table.count(b); i++) {
          const int32_t right = table.id(b, i);
          for (const int32_t wrong : {-1, kMin, num_pages, kMax}) {
            table.id(b, i) = wrong;
            ASSERT_FALSE(table.passes(check, num_pages)) << b << " " << i << " " << wrong;
          }
          table.id(b, i) = num_pages - 1;
          ASSERT_TRUE(table.passes(check, num_pages)) << b << " " << i;
          table.id(b, i) = right;
        }
      }
    }
  }
}

TEST(PageIds, an_empty_pool_has_no_ids) {
  EXPECT_FALSE(Table(1).passes(ids_in_pool, 0));
  EXPECT_TRUE(ids_in_pool({nullptr, 0, {}, 16}, 0));
  const std::vector<int32_t> no_keys(5, 0);
  EXPECT_TRUE(ids_in_pool({nullptr, 0, no_keys, 16}, 0));
}

TEST(PageIds, lengths_take_pages_of_any_size) {
  constexpr int32_t kLongest = kMax - 0xffff;
  for (const int32_t page_size : {1, 2, 3, 5, 7, 16, 24, 100, 1000, 65535, 65536, 99991, 1 << 20,
                                  (1 << 20) + 1, 1 << 30, (1 << 30) + 1, kMax - 1, kMax}) {
    for (const int64_t pages : {1, 2, 3, 31, 32, 33, 64, 2000, 21473}) {
      for (const int64_t beyond : {int64_t{0}, int64_t{1}, int64_t{page_size} - 1}) {
        const int64_t kv_len = pages * page_size - beyond;  // takes exactly so many
        if (kv_len > kLongest || (kv_len - 1) / page_size != pages - 1) continue;
        const std::vector<int32_t> lengths = {static_cast<int32_t>(kv_len)};
        std::vector<int32_t> ids(static_cast<size_t>(pages) + 40, 0);
        ids[static_cast<size_t>(pages)] = -1;
        EXPECT_TRUE(ids_in_pool({ids.data(), 0, lengths, page_size}, 1)) << kv_len;
        ids[static_cast<size_t>(pages) - 1] = -1;
        EXPECT_FALSE(ids_in_pool({ids.data(), 0, lengths, page_size}, 1)) << kv_len;
      }
    }
    const std::vector<int32_t> longest = {kLongest};
    const size_t pages = static_cast<size_t>((kLongest - 1) / page_size) + 1;
    if (pages > 1 << 20) continue;
    std::vector<int32_t> ids(pages + 1, 0);
    ids[pages] = -1;
    EXPECT_TRUE(ids_in_pool({ids.data(), 0, longest, page_size}, 1)) << page_size;
    ids[pages - 1] = -1;
    EXPECT_FALSE(ids_in_pool({ids.data(), 0, longest, page_size}, 1)) << page_size;
  }
}

TEST(PageIds, rows_follow_their_stride) {
  const std::vector<int32_t> ids = {3, -1, 5, -1, 7};
  const std::vector<int32_t> kv_len = {1, 1, 1};
  EXPECT_TRUE(ids_in_pool({ids.data(), 2, kv_len, 1}, 8));
  EXPECT_TRUE(ids_in_pool({ids.data() + 4, -2, kv_len, 1}, 8));
  EXPECT_FALSE(ids_in_pool({ids.data() + 4, -2, kv_len, 1}, 7));
  EXPECT_FALSE(ids_in_pool({ids.data(), 1, kv_len, 1}, 8));
}

}  // namespace
}  // namespace rapt
