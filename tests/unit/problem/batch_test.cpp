// What a batch may hold.
#include "rapt/batch.hpp"

#include <cstring>
#include <limits>
#include <vector>

#include "unit/problem/refusal.hpp"

namespace rapt {
namespace {

using test::refusal;
using test::says;
using Ints = std::vector<int32_t>;

// A batch with its memory. Pages of 4, a pool of 10.
struct Paged {
  Ints query_start = {0, 1, 4}, kv_len = {5, 3}, table = {7, 9, 0, -1};
  int64_t num_pages = 10, width = 2;
  AttentionSpec spec{.num_query_heads = 1, .num_kv_heads = 1, .head_dim_qk = 8, .page_size = 4};

  Batch batch() const {
    return {.query_start = query_start,
            .kv_len = kv_len,
            .page_table = TensorView::contiguous(table.data(), DType::kInt32,
                                                 {std::ssize(table) / width, width}),
            .num_pages = num_pages};
  }
  std::string refused() const {
    return refusal([&] { validate(batch(), spec); });
  }
};

struct Ragged {
  Ints query_start = {0, 1, 4}, kv_len = {5, 3}, kv_start = {0, 6, 9};
  AttentionSpec spec{.num_query_heads = 1, .num_kv_heads = 1, .head_dim_qk = 8, .page_size = 0};

  Batch batch() const {
    return {.query_start = query_start, .kv_len = kv_len, .kv_start = kv_start};
  }
  std::string refused() const {
    return refusal([&] { validate(batch(), spec); });
  }
};

TEST(Batch, plain_ones_are_accepted) {
  EXPECT_EQ(Paged{}.refused(), "accepted");
  EXPECT_EQ(Ragged{}.refused(), "accepted");
}

TEST(Batch, nothing_to_do_is_legal) {
  EXPECT_EQ((Paged{.query_start = {0}, .kv_len = {}, .table = {}}).refused(), "accepted");
  EXPECT_EQ((Paged{.query_start = {}, .kv_len = {}, .table = {}}).refused(), "accepted");
  EXPECT_EQ(refusal([] { validate(Batch{}, Paged{}.spec); }), "accepted");
  EXPECT_EQ(refusal([] { validate(Batch{}, Ragged{}.spec); }), "accepted");
  // Padding rows, and queries that see no key because there are none, or too few.
  EXPECT_EQ((Paged{.query_start = {0, 0, 3}, .kv_len = {0, 0}}).refused(), "accepted");
  EXPECT_EQ((Paged{.query_start = {0, 5, 5}, .kv_len = {3, 8}, .table = {0, 1, 2, 3}}).refused(),
            "accepted");
}

TEST(Batch, query_start_counts_up_from_0) {
  EXPECT_THAT((Paged{.query_start = {1, 2, 4}}).refused(), says("query_start[0] is 1", "be 0"));
  EXPECT_THAT((Paged{.query_start = {-1, 2, 4}}).refused(), says("query_start[0] is -1"));
  EXPECT_THAT((Paged{.query_start = {0, 4, 1}}).refused(),
              says("query_start[2] is 1", "after 4", "must not decrease"));
  EXPECT_THAT((Paged{.query_start = {0, 4}}).refused(),
              says("query_start has 2 entries", "2 requests"));
  EXPECT_THAT((Paged{.query_start = {}}).refused(), says("query_start has 0 entries"));
  EXPECT_THAT((Paged{.query_start = {3}, .kv_len = {}}).refused(), says("query_start[0] is 3"));
}

TEST(Batch, lengths_are_not_negative) {
  EXPECT_THAT((Paged{.kv_len = {5, -3}}).refused(), says("kv_len[1] is -3", "negative"));
  EXPECT_THAT((Ragged{.kv_len = {-2147483647 - 1, 3}}).refused(), says("kv_len[0] is -2147483648"));
}

TEST(Batch, lengths_leave_room_for_a_block_more) {
  EXPECT_EQ((Ragged{.kv_len = {2147418112, 0}, .kv_start = {0, 2147418112, 2147418112}}).refused(),
            "accepted");
  EXPECT_THAT(
      (Ragged{.kv_len = {2147418113, 0}, .kv_start = {0, 2147418113, 2147418113}}).refused(),
      says("kv_len[0] is 2147418113", "at most 2147418112"));
}

TEST(Batch, a_row_stride_that_overflows_is_refused) {
  for (int64_t stride : {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(),
                         std::numeric_limits<int64_t>::max() / 2}) {
    const Paged paged;
    Batch batch = paged.batch();
    batch.page_table.stride[0] = stride;
    EXPECT_THAT(refusal([&] { validate(batch, paged.spec); }), says("page_table", "64 bits"));
  }
}

TEST(Batch, the_table_must_be_wide_enough_for_the_lengths) {
  EXPECT_THAT((Paged{.kv_len = {9, 3}}).refused(),
              says("kv_len[0] is 9", "3 pages of 4", "2 columns"));
  EXPECT_THAT((Paged{.kv_len = {2147418112, 3}}).refused(), says("536854528 pages"));
  EXPECT_THAT((Paged{.table = {7, 9}}).refused(), says("page_table has 1 rows", "2 requests"));
}

// Entries past the lengths are never looked at; those before are checked, each by its place.
TEST(Batch, page_ids_outside_the_pool_name_request_and_entry) {
  EXPECT_THAT((Paged{.table = {7, 10, 0, 0}}).refused(),
              says("page_table[0, 1] is 10", "pages 0 to 9"));
  EXPECT_THAT((Paged{.table = {7, 9, -1, 0}}).refused(), says("page_table[1, 0] is -1"));
  EXPECT_THAT((Paged{.table = {7, 9, 1 << 30, 0}}).refused(),
              says("page_table[1, 0] is 1073741824"));
  EXPECT_EQ((Paged{.table = {7, 9, 0, 1 << 30}}).refused(), "accepted");
  EXPECT_EQ((Paged{.kv_len = {0, 4}, .table = {-7, 99, 0, -5}}).refused(), "accepted");
  EXPECT_THAT((Paged{.num_pages = 0}).refused(), says("num_pages is 0", "request 0"));
  EXPECT_THAT((Paged{.num_pages = -1}).refused(), says("num_pages is -1"));
  EXPECT_THAT((Paged{.num_pages = int64_t{1} << 31}).refused(), says("num_pages is 2147483648"));
}

TEST(Batch, an_int64_table_is_refused_by_its_type) {  // public report B05
  const std::vector<int64_t> wide = {7, 9, 0, 0};
  Paged paged;
  Batch batch = paged.batch();
  batch.page_table = TensorView::contiguous(wide.data(), DType::kInt64, {2, 2});
  EXPECT_THAT(refusal([&] { validate(batch, paged.spec); }),
              says("page_table is int64", "must be int32"));
}

TEST(Batch, the_table_is_a_matrix_with_contiguous_rows) {
  Paged paged;
  Batch batch = paged.batch();
  batch.page_table = {};
  EXPECT_THAT(refusal([&] { validate(batch, paged.spec); }), says("page_table has rank 0"));
  batch.page_table = TensorView::contiguous(paged.table.data(), DType::kInt32, {4});
  EXPECT_THAT(refusal([&] { validate(batch, paged.spec); }), says("page_table has rank 1"));
  batch.page_table = TensorView::strided(paged.table.data(), DType::kInt32, {2, 2}, {1, 2});
  EXPECT_THAT(refusal([&] { validate(batch, paged.spec); }), says("last axis has stride 2"));
  batch.page_table = TensorView::contiguous(nullptr, DType::kInt32, {2, 2});
  EXPECT_THAT(refusal([&] { validate(batch, paged.spec); }), says("page_table has no data"));
  const auto* odd = reinterpret_cast<const char*>(paged.table.data()) + 1;
  batch.page_table = TensorView::contiguous(odd, DType::kInt32, {2, 1});
  EXPECT_THAT(refusal([&] { validate(batch, paged.spec); }), says("page_table is at", "aligned"));
}

TEST(Batch, strided_rows_are_followed_and_a_lone_rows_stride_is_not) {
  const Ints padded = {7, 9, -1, -1, 3, -1, -1, -1};
  Paged paged;
  Batch batch = paged.batch();
  batch.page_table = TensorView::strided(padded.data(), DType::kInt32, {2, 2}, {4, 1});
  EXPECT_EQ(refusal([&] { validate(batch, paged.spec); }), "accepted");
  Paged one{.query_start = {0, 1}, .kv_len = {5}};
  batch = one.batch();
  batch.page_table = TensorView::strided(padded.data(), DType::kInt32, {1, 2}, {1 << 30, 1});
  EXPECT_EQ(refusal([&] { validate(batch, one.spec); }), "accepted");
}

TEST(Batch, ragged_ranges_hold_their_lengths) {
  EXPECT_THAT((Ragged{.kv_len = {7, 3}}).refused(), says("kv_len[0] is 7", "leaves it 6 rows"));
  EXPECT_THAT((Ragged{.kv_start = {0, 6, 5}}).refused(), says("kv_start[2] is 5", "after 6"));
  EXPECT_THAT((Ragged{.kv_start = {0, 6}}).refused(), says("kv_start has 2 entries"));
  EXPECT_THAT((Ragged{.kv_start = {}}).refused(), says("kv_start has 0 entries"));
}

TEST(Batch, a_table_and_ragged_ranges_exclude_each_other) {
  Paged paged;
  Batch batch = paged.batch();
  const Ints kv_start = {0, 6, 9};
  batch.kv_start = kv_start;
  EXPECT_THAT(refusal([&] { validate(batch, paged.spec); }),
              says("kv_start is given", "page_size 4"));
  Ragged ragged;
  batch.num_pages = 0;
  EXPECT_THAT(refusal([&] { validate(batch, ragged.spec); }), says("page_table is given"));
}

TEST(Batch, mask_bits_are_packed_across_requests) {  // public report G07: 10 x 20 is 25 bytes
  const Ints start = {0, 10, 13}, lengths = {20, 5};
  EXPECT_EQ(custom_mask_bytes(
                {.query_start = std::span(start).first(2), .kv_len = std::span(lengths).first(1)}),
            25);
  EXPECT_EQ(custom_mask_bytes({.query_start = start, .kv_len = lengths}), 27);  // 215 bits
  EXPECT_EQ(custom_mask_bytes({}), 0);
}

TEST(Batch, mask_size_is_64_bit_and_checked) {
  const Ints one = {0, 2147483647}, long_kv = {2147418112};
  EXPECT_EQ(custom_mask_bytes({.query_start = one, .kv_len = long_kv}), 576443159848951808);
  const Ints short_start = {0};
  EXPECT_THAT(refusal([&] { custom_mask_bytes({.query_start = short_start, .kv_len = long_kv}); }),
              says("query_start has 1 entries"));
  const Ints negative = {-1};
  EXPECT_THAT(refusal([&] { custom_mask_bytes({.query_start = one, .kv_len = negative}); }),
              says("kv_len[0] is -1"));
}

}  // namespace
}  // namespace rapt
