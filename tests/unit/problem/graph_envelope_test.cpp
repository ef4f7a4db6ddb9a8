// What an envelope may say, and which batches are in it.
#include "rapt/graph_envelope.hpp"

#include <limits>
#include <vector>

#include "problem/envelope_check.hpp"
#include "unit/problem/refusal.hpp"

namespace rapt {
namespace {

using test::refusal;
using test::says;
using Ints = std::vector<int32_t>;

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();

AttentionSpec spec_of(int32_t page_size) {
  return {.num_query_heads = 1, .num_kv_heads = 1, .head_dim_qk = 8, .page_size = page_size};
}

GraphEnvelope paged() {
  return {.max_requests = 2, .max_tokens = 6, .max_query_len = 4, .max_kv_len = 9, .num_pages = 10};
}

// That some GPU's memory would be at.
alignas(4) char some_memory[64];
TensorView table_on_gpu(int64_t rows, int64_t width) {
  return TensorView::contiguous(some_memory, DType::kInt32, {rows, width}, {DeviceKind::kCuda, 0});
}

std::string refused(const GraphEnvelope& envelope, int32_t page_size = 4) {
  return refusal([&] { validate(envelope, spec_of(page_size)); });
}

TEST(GraphEnvelope, plain_ones_are_accepted) {
  EXPECT_EQ(refused(paged()), "accepted");
  GraphEnvelope envelope = paged();
  envelope.page_table = table_on_gpu(2, 3);
  EXPECT_EQ(refused(envelope), "accepted");
  envelope.max_query_len = 0;
  EXPECT_EQ(refused(envelope), "accepted");
  EXPECT_EQ(refused({.max_requests = 1, .max_tokens = 1, .max_kv_len = 1, .max_kv_rows = 1}, 0),
            "accepted");
}

TEST(GraphEnvelope, numbers_out_of_bounds_are_named_with_them) {
  const auto with = [](const auto& change) {
    GraphEnvelope envelope = paged();
    change(envelope);
    return refused(envelope);
  };
  using Envelope = GraphEnvelope;
  for (const int32_t bad : {0, -1, (1 << 24) + 1})
    EXPECT_THAT(with([&](Envelope& e) { e.max_requests = bad; }),
                says("max_requests is " + std::to_string(bad), "from 1 to 16777216"));
  for (const int32_t bad : {0, -7})
    EXPECT_THAT(with([&](Envelope& e) { e.max_tokens = bad; }),
                says("max_tokens is " + std::to_string(bad), "from 1 to 2147483647"));
  for (const int32_t bad : {-1, 7})
    EXPECT_THAT(with([&](Envelope& e) { e.max_query_len = bad; }),
                says("max_query_len is " + std::to_string(bad), "from 0 to 6"));
  for (const int32_t bad : {0, -1, kMax})
    EXPECT_THAT(with([&](Envelope& e) { e.max_kv_len = bad; }),
                says("max_kv_len is " + std::to_string(bad), "from 1 to 2147418112"));
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1} << 31})
    EXPECT_THAT(with([&](Envelope& e) { e.num_pages = bad; }),
                says("num_pages is " + std::to_string(bad), "from 1 to 2147483647"));
  EXPECT_THAT(with([](Envelope& e) { e.max_kv_rows = 5; }), says("max_kv_rows is 5", "paged"));

  const GraphEnvelope ragged{.max_requests = 1, .max_tokens = 1, .max_kv_len = 1, .max_kv_rows = 1};
  GraphEnvelope changed = ragged;
  changed.max_kv_rows = 0;
  EXPECT_THAT(refused(changed, 0), says("max_kv_rows is 0", "from 1 to 2147483647"));
  changed = ragged, changed.num_pages = 3;
  EXPECT_THAT(refused(changed, 0), says("num_pages or page_table", "ragged"));
}

TEST(GraphEnvelope, page_tables_must_hold_what_it_may_have) {
  const auto with_table = [](const TensorView& table) {
    GraphEnvelope envelope = paged();
    envelope.page_table = table;
    return refused(envelope);
  };
  EXPECT_THAT(with_table(table_on_gpu(1, 3)), says("at least [2, 3]"));
  EXPECT_THAT(with_table(table_on_gpu(2, 2)), says("at least [2, 3]"));
  TensorView table = table_on_gpu(2, 3);
  table.device = {};
  EXPECT_THAT(with_table(table), says("is on the host", "leave it out"));
  table = table_on_gpu(2, 3), table.dtype = DType::kInt64;
  EXPECT_THAT(with_table(table), says("must be int32"));
  table = table_on_gpu(2, 3), table.stride[1] = 2;
  EXPECT_THAT(with_table(table), says("stride 2: must be 1"));
  table = table_on_gpu(2, 3), table.data = some_memory + 1;
  EXPECT_THAT(with_table(table), says("aligned to its 4-byte ids"));
  table = table_on_gpu(2, 3), table.data = nullptr;
  EXPECT_THAT(with_table(table), says("aligned to its 4-byte ids"));
}

TEST(GraphEnvelope, masks_have_room_for_the_largest_batch) {
  EXPECT_EQ(custom_mask_bytes(paged()), (6 * 9 + 7) / 8);
  GraphEnvelope large = paged();
  large.max_tokens = large.max_kv_len = 1 << 30;
  EXPECT_EQ(custom_mask_bytes(large), int64_t{1} << 57);
  GraphEnvelope bad = paged();
  bad.max_tokens = -8;
  EXPECT_THAT(refusal([&] { custom_mask_bytes(bad); }), says("max_tokens is -8: must be from 1"));
  bad = paged();
  bad.max_kv_len = kMax;
  EXPECT_THAT(refusal([&] { custom_mask_bytes(bad); }), says("max_kv_len is 2147483647"));
}

std::string outside(const GraphEnvelope& envelope, const Batch& batch) {
  return refusal([&] { check_within(envelope, batch); });
}

TEST(GraphEnvelope, batches_up_to_its_bounds_are_in_it) {
  const Ints starts = {0, 4, 6}, lens = {9, 2}, table(6);
  const Batch batch{.query_start = starts,
                    .kv_len = lens,
                    .page_table = TensorView::contiguous(table.data(), DType::kInt32, {2, 3}),
                    .num_pages = 10};
  EXPECT_EQ(outside(paged(), batch), "accepted");
  EXPECT_EQ(outside(paged(), Batch{}), "accepted");
}

TEST(GraphEnvelope, every_number_that_a_batch_exceeds_is_named_with_its_bound) {
  const Ints starts = {0, 1, 8, 9}, lens = {3, 10, 11}, table(9);
  const Batch batch{.query_start = starts,
                    .kv_len = lens,
                    .page_table = TensorView::contiguous(table.data(), DType::kInt32, {3, 3}),
                    .num_pages = 12};
  EXPECT_THAT(outside(paged(), batch),
              says("the number of requests is 3, at most 2", "query tokens is 9, at most 6",
                   "query_len[1] is 7, at most 4", "kv_len[1] is 10, at most 9",
                   "num_pages is 12, at most 10", "make the envelope larger"));
  const Ints one = {0, 1}, keys = {1}, kv_start = {0, 8};
  EXPECT_THAT(outside({.max_requests = 1, .max_tokens = 1, .max_kv_len = 1, .max_kv_rows = 7},
                      {.query_start = one, .kv_len = keys, .num_pages = 9, .kv_start = kv_start}),
              says("kv_start's last is 8, at most 7"));
}

TEST(GraphEnvelope, a_table_on_the_device_is_the_one_that_the_graph_reads) {
  const Ints starts = {0, 1, 2}, lens = {9, 9};
  Batch batch{
      .query_start = starts, .kv_len = lens, .page_table = table_on_gpu(2, 3), .num_pages = 10};
  EXPECT_THAT(outside(paged(), batch), says("page_table is on cuda:0", "has none"));
  GraphEnvelope envelope = paged();
  envelope.page_table = table_on_gpu(2, 3);
  EXPECT_EQ(outside(envelope, batch), "accepted");
  batch.page_table.data = some_memory + 4;
  EXPECT_THAT(outside(envelope, batch), says("a captured graph reads that one"));
  batch.page_table = table_on_gpu(2, 4);
  EXPECT_THAT(outside(envelope, batch), says("int32[2, 4]", "int32[2, 3]"));
  batch.page_table.device = {};
  EXPECT_THAT(outside(envelope, batch), says("a captured graph reads that one"));
  // Rows of which there is one have no stride.
  batch.page_table = table_on_gpu(1, 4);
  batch.kv_len = {lens.data(), 1}, batch.query_start = {starts.data(), 2};
  EXPECT_EQ(outside(envelope, batch), "accepted");
}

}  // namespace
}  // namespace rapt
