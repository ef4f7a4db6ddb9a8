// Page arithmetic: manager pages and slots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "rapt/error.hpp"
#include "rapt/kv_cache.hpp"
#include "support/error_of.hpp"

namespace rapt {
namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PageTable, manager_page_b_is_kernel_pages_from_b_times_ratio) {
  std::vector<int32_t> out(9);
  expand_pages(std::vector<int32_t>{3, -1, 0}, 3, out);
  EXPECT_THAT(out, ElementsAre(9, 10, 11, -1, -1, -1, 0, 1, 2));
  expand_pages(std::vector<int32_t>{3, -1, 0}, 1, std::span(out).first(3));
  EXPECT_THAT(std::span(out).first(3), ElementsAre(3, -1, 0));
}

// Writing token t of a manager page of 4 * 16 tokens through kernel pages of 16 finds the slot that
// the manager's own page size gives.
TEST(PageTable, expanded_pages_address_the_same_slots) {
  const std::vector<int32_t> manager_pages = {5, 0, 7};
  std::vector<int32_t> kernel_pages(12);
  expand_pages(manager_pages, 4, kernel_pages);
  for (int64_t pos = 0; pos < 3 * 64; pos++)
    EXPECT_EQ(slot_of(kernel_pages, 16, pos), slot_of(manager_pages, 64, pos));
}

TEST(PageTable, last_kernel_page_may_be_the_largest_int32) {
  std::vector<int32_t> out(2);
  expand_pages(std::vector<int32_t>{1073741823}, 2, out);
  EXPECT_THAT(out, ElementsAre(2147483646, 2147483647));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] { expand_pages(std::vector<int32_t>{1073741824}, 2, out); }),
              HasSubstr("manager_pages[0] is 1073741824"));
  EXPECT_THAT(out, ElementsAre(2147483646, 2147483647)) << "an error must not write";
}

TEST(PageTable, expand_refuses_a_wrong_size) {
  std::vector<int32_t> out(5);
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         expand_pages(std::vector<int32_t>{1, 2}, 3, out);
                       }),
              HasSubstr("out has 5 entries: 2 manager pages of 3 kernel pages take 6"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { expand_pages({}, 0, {}); }),
              HasSubstr("ratio is 0"));
}

// Public report B07: position 31 is the last of page 1, and the next page starts only at 32.
TEST(PageTable, slots_change_page_exactly_at_multiples_of_the_page_size) {
  const std::vector<int32_t> pages = {7, 2, 9};
  EXPECT_EQ(slot_of(pages, 16, 0), 7 * 16);
  EXPECT_EQ(slot_of(pages, 16, 15), 7 * 16 + 15);
  EXPECT_EQ(slot_of(pages, 16, 16), 2 * 16);
  EXPECT_EQ(slot_of(pages, 16, 31), 2 * 16 + 15);
  EXPECT_EQ(slot_of(pages, 16, 32), 9 * 16);
  EXPECT_EQ(slot_of(pages, 1, 2), 9);
}

TEST(PageTable, slots_are_64_bit) {
  EXPECT_EQ(slot_of(std::vector<int32_t>{2147483647}, 1024, 1023), 2147483647LL * 1024 + 1023);
}

TEST(PageTable, slot_past_the_pages_is_refused) {
  const std::vector<int32_t> pages = {7, 2, 9};
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { slot_of(pages, 16, 48); }),
              HasSubstr("pos is 48: the request's 3 pages of 16 hold positions 0 to 47"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { slot_of(pages, 16, -1); }),
              HasSubstr("pos is -1"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { slot_of(pages, 0, 1); }),
              HasSubstr("page_size is 0"));
}

// Its slot would be negative, which the writer of a cache takes as "do not write".
TEST(PageTable, slot_of_an_unused_page_is_refused) {
  const std::vector<int32_t> pages = {7, -1, 9, std::numeric_limits<int32_t>::min()};
  EXPECT_EQ(slot_of(pages, 16, 32), 9 * 16);
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { slot_of(pages, 16, 16); }),
              HasSubstr("pages[1] is -1: position 16 has no page"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { slot_of(pages, 16, 63); }),
              HasSubstr("pages[3] is -2147483648: position 63 has no page"));
}

}  // namespace
}  // namespace rapt
