#include "plan/gpu_envelope.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include "support/error_of.hpp"
#include "unit/plan/gpu_plan_inputs.hpp"

namespace rapt::gpu {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// As they come for head dim 128: 16 and 32 rows for decoding, 128 for prefill.
std::vector<Machine> tiles_of_h200() {
  const DeviceInfo h200 = device_info("h200");
  return {machine_of(h200, 6, 16, 32), machine_of(h200, 3, 32, 32), machine_of(h200, 2, 128, 64)};
}

std::vector<size_t> tiles_used(const EnvelopeBounds& bounds) {
  std::vector<size_t> used;
  for (size_t i = 0; i < bounds.num_works.size(); i++)
    if (bounds.num_works[i]) used.push_back(i);
  return used;
}

int in(int low, int high) {
  return *rc::gen::inRange(low, high + 1);
}

// A valid batch within the envelope, as often as not one that fills it.
Lengths draw_batch(const GraphEnvelope& envelope) {
  const bool full = *rc::gen::arbitrary<bool>();
  Lengths drawn;
  const auto num_requests = full ? envelope.max_requests : in(0, envelope.max_requests);
  const auto most_queries = static_cast<int32_t>(envelope.query_len_bound());
  int32_t tokens_left = envelope.max_tokens;
  for (int b = 0; b < num_requests; b++) {
    const int32_t most = std::min(tokens_left, most_queries);
    const int32_t query_len = full ? most : in(0, most);
    tokens_left -= query_len;
    drawn.add(query_len,
              *rc::gen::element(0, envelope.max_kv_len, in(0, envelope.max_kv_len), in(0, 40)) %
                  (envelope.max_kv_len + 1));
  }
  return drawn;
}

struct Case {
  AttentionSpec spec;
  GraphEnvelope envelope;
  std::vector<Machine> tiles;
};

Case draw_case() {
  Case drawn;
  drawn.spec = spec_of(in(1, 4), in(1, 40));
  drawn.spec.page_size = 0;
  drawn.spec.causal = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) drawn.spec.window = {in(-1, 300), in(-1, 20)};
  drawn.spec.batch_invariant = *rc::gen::arbitrary<bool>();
  drawn.envelope.max_requests = in(1, 12);
  drawn.envelope.max_tokens = *rc::gen::element(drawn.envelope.max_requests, in(1, 600));
  drawn.envelope.max_query_len = *rc::gen::element(0, 1, in(1, drawn.envelope.max_tokens));
  drawn.envelope.max_kv_len = *rc::gen::element(1, 31, in(1, 3000));
  drawn.envelope.max_kv_rows = 1 << 20;
  // Slow, so that small batches are worth cutting.
  for (const int rows : {16, 32, 128})
    drawn.tiles.push_back({in(1, 300), 0.05, 2, rows, *rc::gen::element(32, 64)});
  return drawn;
}

TEST(GpuEnvelope, no_batch_within_it_has_more_than_its_bounds) {
  ASSERT_TRUE(rc::check("all envelopes, batches, tiles", [] {
    const Case drawn = draw_case();
    const EnvelopeBounds bounds = bounds_of(drawn.envelope, drawn.spec, drawn.tiles);
    const Lengths lengths = draw_batch(drawn.envelope);
    const std::span<const Machine> tiles(bounds.tiles.data(), drawn.tiles.size());
    Planned list;
    plan_work(lengths.batch(), drawn.spec, tiles, 0, list);
    RC_ASSERT(std::accumulate(list.num_works.begin(), list.num_works.end(), size_t{0}) ==
              list.works.size());
    for (size_t i = 0; i < tiles.size(); i++) RC_ASSERT(list.num_works[i] <= bounds.num_works[i]);
    RC_ASSERT(list.num_partial_rows <= bounds.num_partial_rows);
    RC_ASSERT(std::ssize(list.merges) <= bounds.num_merges);
    RC_CLASSIFY(!list.merges.empty(), "cut");
  }));
}

// Steps in graphs and others may alternate: what a request's bits depend on is the same in both.
TEST(GpuEnvelope, batch_invariant_works_are_those_without_an_envelope) {
  ASSERT_TRUE(rc::check("all envelopes, batches, tiles", [] {
    Case drawn = draw_case();
    drawn.spec.batch_invariant = true;
    const EnvelopeBounds bounds = bounds_of(drawn.envelope, drawn.spec, drawn.tiles);
    const Lengths lengths = draw_batch(drawn.envelope);
    Planned within, plain;
    plan_work(lengths.batch(), drawn.spec, {bounds.tiles.data(), drawn.tiles.size()}, 0, within);
    plan_work(lengths.batch(), drawn.spec, drawn.tiles, 0, plain);
    RC_ASSERT(within.num_works == plain.num_works);
    for (size_t i = 0; i < plain.works.size(); i++) {
      const device::AttentionWork &a = within.works[i], &b = plain.works[i];
      RC_ASSERT(std::tie(a.request, a.row_begin, a.row_end, a.key_begin, a.key_end, a.partial) ==
                std::tie(b.request, b.row_begin, b.row_end, b.key_begin, b.key_end, b.partial));
    }
  }));
}

// The bound is what a full batch takes, not much more: blocks without work cost time.
TEST(GpuEnvelope, decoding_is_one_launch_with_a_block_for_each_request_and_piece) {
  const GraphEnvelope envelope{
      .max_requests = 256, .max_tokens = 256, .max_query_len = 1, .max_kv_len = 8192};
  const EnvelopeBounds bounds = bounds_of(envelope, spec_of(8, 4), tiles_of_h200());
  EXPECT_THAT(tiles_used(bounds), ElementsAre(0));
  EXPECT_EQ(bounds.num_works[0], 256 + 2 * 792 / 8);
  EXPECT_EQ(bounds.num_merges, 792 / 8);  // of two pieces each
  // Keys of one block are not cut.
  GraphEnvelope short_one = envelope;
  short_one.max_kv_len = 32;
  EXPECT_EQ(bounds_of(short_one, spec_of(8, 4), tiles_of_h200()).num_works[0], 256);
  EXPECT_EQ(bounds_of(short_one, spec_of(8, 4), tiles_of_h200()).num_partial_rows, 0);
}

TEST(GpuEnvelope, tiles_follow_from_the_rows_of_a_request) {
  const auto used = [](int32_t group, int32_t max_query_len) {
    const GraphEnvelope envelope{
        .max_requests = 8, .max_tokens = 4096, .max_query_len = max_query_len, .max_kv_len = 8192};
    return tiles_used(bounds_of(envelope, spec_of(2, group), tiles_of_h200()));
  };
  EXPECT_THAT(used(4, 1), ElementsAre(0));
  EXPECT_THAT(used(4, 4), ElementsAre(0));
  EXPECT_THAT(used(4, 8), ElementsAre(1));   // 32 rows
  EXPECT_THAT(used(32, 1), ElementsAre(1));  // one token's
  EXPECT_THAT(used(4, 9), ElementsAre(0, 2));
  EXPECT_THAT(used(32, 0), ElementsAre(1, 2));
  EXPECT_THAT(used(64, 1), ElementsAre(2));
}

TEST(GpuEnvelope, a_mixed_step_has_decoding_on_the_small_tile) {
  const GraphEnvelope envelope{.max_requests = 65, .max_tokens = 4096 + 64, .max_kv_len = 16384};
  const AttentionSpec spec = spec_of(8, 4);
  const EnvelopeBounds bounds = bounds_of(envelope, spec, tiles_of_h200());
  Lengths lengths;
  for (int b = 0; b < 65; b++) {
    lengths.query_start.push_back(lengths.query_start.back() + (b == 64 ? 4096 : 1));
    lengths.kv_len.push_back(16000);
    lengths.kv_start.push_back(lengths.kv_start.back() + 16000);
  }
  Planned list;
  plan_work(lengths.batch(), spec, {bounds.tiles.data(), 3}, 0, list);
  EXPECT_GE(list.num_works[0], 64);
  EXPECT_EQ(list.num_works[1], 0);
  EXPECT_EQ(list.num_works[2], 4096 * 4 / 128);
}

TEST(GpuEnvelope, what_a_kernel_cannot_count_is_refused) {
  const auto refused = [](const GraphEnvelope& envelope, int32_t group) {
    return test::error_of(ErrorCode::kInvalidArgument,
                          [&] { bounds_of(envelope, spec_of(2, group), tiles_of_h200()); });
  };
  EXPECT_THAT(refused({.max_requests = 1, .max_tokens = 1 << 30, .max_kv_len = 64}, 4),
              HasSubstr("has 4294967296 rows, at most 2147418112: set a smaller max_query_len"));
  EXPECT_THAT(refused({.max_requests = 1 << 24,
                       .max_tokens = 1 << 30,
                       .max_query_len = 1 << 10,
                       .max_kv_len = 64},
                      1024),
              HasSubstr("thread blocks, at most 2^31 - 1"));
}

}  // namespace
}  // namespace rapt::gpu
