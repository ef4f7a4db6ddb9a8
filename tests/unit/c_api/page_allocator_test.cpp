#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "c_tensor.hpp"
#include "expect_status.hpp"

namespace rapt::test {
namespace {

TEST(CPageAllocator, refuses_lengths_that_no_sequence_has) {
  rapt_page_allocator* allocator = nullptr;
  ASSERT_TRUE(succeeded(rapt_page_allocator_create(10, 4, 1, &allocator)));
  const int32_t token = 1;
  int64_t sequence = -1;
  ASSERT_TRUE(succeeded(rapt_page_allocator_begin(allocator, &token, 1, &sequence)));
  ASSERT_TRUE(succeeded(rapt_page_allocator_reserve(allocator, sequence, 32)));
  for (size_t count : {size_t{33}, SIZE_MAX / 2 + 1, SIZE_MAX})
    EXPECT_EQ(rapt_page_allocator_append(allocator, sequence, &token, count),
              RAPT_INVALID_ARGUMENT);
  rapt_page_allocator_destroy(allocator);
}

TEST(CPageAllocator, shares_a_prefix_and_gives_every_page_back) {
  rapt_page_allocator* allocator = nullptr;
  ASSERT_TRUE(succeeded(rapt_page_allocator_create(10, 4, 1, &allocator)));
  std::vector<int32_t> tokens(11);
  std::iota(tokens.begin(), tokens.end(), 100);

  int64_t first = -1, second = -1, num_tokens = -1, cached = -1;
  ASSERT_TRUE(succeeded(rapt_page_allocator_begin(allocator, tokens.data(), 11, &first)));
  ASSERT_TRUE(succeeded(rapt_page_allocator_reserve(allocator, first, 11)));
  ASSERT_TRUE(succeeded(rapt_page_allocator_append(allocator, first, tokens.data(), 11)));
  const int32_t* pages = nullptr;
  size_t num_pages = 0;
  ASSERT_TRUE(succeeded(rapt_page_allocator_pages(allocator, first, &pages, &num_pages)));
  ASSERT_EQ(num_pages, 3u);
  for (size_t i = 0; i < num_pages; i++) EXPECT_NE(pages[i], 0);  // the null page
  const std::vector<int32_t> of_first(pages, pages + num_pages);

  ASSERT_TRUE(succeeded(rapt_page_allocator_begin(allocator, tokens.data(), 11, &second)));
  ASSERT_TRUE(succeeded(rapt_page_allocator_tokens(allocator, second, &num_tokens, &cached)));
  EXPECT_EQ(cached, 8);
  ASSERT_TRUE(succeeded(rapt_page_allocator_pages(allocator, second, &pages, &num_pages)));
  ASSERT_GE(num_pages, 2u);
  EXPECT_EQ(pages[0], of_first[0]);
  EXPECT_EQ(pages[1], of_first[1]);

  rapt_page_allocator_stats stats{};
  stats.struct_size = sizeof stats;
  ASSERT_TRUE(succeeded(rapt_page_allocator_get_stats(allocator, &stats)));
  EXPECT_EQ(stats.num_pages, 10);
  EXPECT_EQ(stats.num_used_pages, 3);
  EXPECT_EQ(stats.num_shared_pages, 2);

  int64_t forked = -1;
  int32_t from = 0, to = 0;
  ASSERT_TRUE(succeeded(rapt_page_allocator_fork(allocator, first, &forked, &from, &to)));
  EXPECT_EQ(from, of_first[2]);  // three tokens of its last page
  EXPECT_NE(to, from);
  for (int64_t sequence : {first, second, forked})
    EXPECT_TRUE(succeeded(rapt_page_allocator_end(allocator, sequence)));
  ASSERT_TRUE(succeeded(rapt_page_allocator_get_stats(allocator, &stats)));
  EXPECT_EQ(stats.num_used_pages, 0);
  EXPECT_EQ(stats.num_free_pages, 9);
  rapt_page_allocator_destroy(allocator);
}

TEST(CPageAllocator, refuses_what_the_pool_cannot_give) {
  rapt_page_allocator* allocator = nullptr;
  EXPECT_EQ(rapt_page_allocator_create(-1, 4, 0, &allocator), RAPT_INVALID_ARGUMENT);
  EXPECT_EQ(rapt_page_allocator_create(4, 0, 0, &allocator), RAPT_INVALID_ARGUMENT);
  EXPECT_TRUE(refused(rapt_page_allocator_create(4, 4, 2, &allocator), RAPT_INVALID_ARGUMENT,
                      "reserve_null_page is 2"));
  EXPECT_EQ(allocator, nullptr);
  ASSERT_TRUE(succeeded(rapt_page_allocator_create(4, 4, 0, &allocator)));
  const int32_t token = 1;
  int64_t sequence = -1;
  ASSERT_TRUE(succeeded(rapt_page_allocator_begin(allocator, &token, 1, &sequence)));
  int32_t can = -1;
  EXPECT_TRUE(succeeded(rapt_page_allocator_can_reserve(allocator, sequence, 16, &can)));
  EXPECT_EQ(can, 1);
  EXPECT_TRUE(succeeded(rapt_page_allocator_can_reserve(allocator, sequence, 17, &can)));
  EXPECT_EQ(can, 0);
  EXPECT_EQ(rapt_page_allocator_reserve(allocator, sequence, 17), RAPT_OUT_OF_MEMORY);
  EXPECT_EQ(rapt_page_allocator_end(allocator, sequence + 99), RAPT_INVALID_ARGUMENT);
  EXPECT_TRUE(refused(rapt_page_allocator_append(allocator, sequence, nullptr, 1),
                      RAPT_INVALID_ARGUMENT, "tokens is null"));
  rapt_page_allocator_destroy(allocator);
}

}  // namespace
}  // namespace rapt::test
