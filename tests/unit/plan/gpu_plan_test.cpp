#include "plan/gpu_plan.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "unit/plan/gpu_plan_inputs.hpp"

namespace rapt::gpu {
namespace {

using device::AttentionWork;

// The contract's sentence on what a query sees, written down again.
bool sees(const AttentionSpec& spec, int64_t i, int64_t j, int64_t query_len, int64_t kv_len) {
  const int64_t p = i + kv_len - query_len;
  if (spec.causal.value_or(true) && j > p) return false;
  if (spec.window.left != -1 && j < p - spec.window.left) return false;
  return spec.window.right == -1 || j <= p + spec.window.right;
}

struct Drawn {
  AttentionSpec spec;
  Lengths lengths;
  std::vector<Machine> tiles;
  int64_t page_table_width = 0;
};

Drawn draw() {
  Drawn drawn;
  auto in = [](int low, int high) { return *rc::gen::inRange(low, high + 1); };
  drawn.spec = spec_of(in(1, 4), in(1, 9));
  drawn.spec.page_size = *rc::gen::element(0, 1, 16, 48);
  drawn.page_table_width = drawn.spec.page_size ? in(1, 3000) : 0;
  drawn.spec.causal = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) drawn.spec.window = {in(-1, 300), in(-1, 20)};
  drawn.spec.batch_invariant = *rc::gen::arbitrary<bool>();
  for (int b = in(0, 6); b > 0; b--)
    drawn.lengths.add(*rc::gen::element(0, 1, 1, 2, 5, in(1, 200)),
                      *rc::gen::element(0, 1, in(1, 100), in(1, 3000)));
  // Slow, so that small batches are worth cutting.
  for (int i = in(1, 2); i > 0; i--)
    drawn.tiles.push_back(
        {in(1, 300), 0.05, 2, *rc::gen::element(16, 64, 128), *rc::gen::element(32, 64)});
  // All but the last may refuse requests of many tiles, or all.
  if (*rc::gen::arbitrary<bool>() && drawn.tiles.size() > 1)
    drawn.tiles[0].max_request_tiles = in(0, 3);
  return drawn;
}

Planned plan(const Drawn& drawn) {
  Planned list;
  plan_work(drawn.lengths.batch(), drawn.spec, drawn.tiles, drawn.page_table_width, list);
  return list;
}

using RowKey = std::pair<int, int>;  // request, row of each KV head

std::map<RowKey, std::vector<const AttentionWork*>> by_row(const Planned& list) {
  std::map<RowKey, std::vector<const AttentionWork*>> rows;
  for (const AttentionWork& work : list.works)
    for (int row = work.row_begin; row < work.row_end; row++)
      rows[{work.request, row}].push_back(&work);
  return rows;
}

// The longest any slot works when blocks start in order on the first slot that is free.
double makespan(const std::vector<double>& blocks, int32_t num_slots) {
  std::vector<double> slots(static_cast<size_t>(num_slots));
  for (const double block : blocks) *std::min_element(slots.begin(), slots.end()) += block;
  return *std::max_element(slots.begin(), slots.end());
}

TEST(GpuPlan, covers_every_row_and_visible_key_exactly_once) {
  ASSERT_TRUE(rc::check("all lengths, windows, tiles", [] {
    const Drawn drawn = draw();
    const Planned list = plan(drawn);
    const Batch batch = drawn.lengths.batch();
    const auto rows = by_row(list);
    size_t num_rows = 0;
    for (int32_t b = 0; b < batch.num_requests(); b++)
      for (int32_t row = 0; row < batch.query_len(b) * drawn.spec.group(); row++) {
        num_rows++;
        const auto found = rows.find({b, row});
        RC_ASSERT(found != rows.end());
        std::vector<int> times(static_cast<size_t>(batch.kv_len[b]) + 1);
        for (const AttentionWork* work : found->second) {
          RC_ASSERT(work->key_begin >= 0 && work->key_end <= batch.kv_len[b]);
          for (int key = work->key_begin; key < work->key_end; key++) times[key]++;
        }
        for (int key = 0; key < batch.kv_len[b]; key++) {
          const bool seen =
              sees(drawn.spec, row / drawn.spec.group(), key, batch.query_len(b), batch.kv_len[b]);
          RC_ASSERT((seen ? times[key] == 1 : times[key] <= 1));
        }
      }
    RC_ASSERT(rows.size() == num_rows);
  }));
}

TEST(GpuPlan, partial_rows_are_written_once_and_merged_once) {
  ASSERT_TRUE(rc::check("all lengths, windows, tiles", [] {
    const Drawn drawn = draw();
    const Planned list = plan(drawn);
    const int heads = drawn.spec.num_kv_heads;
    std::map<int64_t, std::tuple<int, int, int>> owner;  // of a partial row: request, head, row
    for (const auto& [key, works] : by_row(list)) {
      RC_ASSERT(works.size() == 1 || works[0]->partial >= 0);
      const auto [b, row] = key;
      for (const AttentionWork* work : works)
        for (int head = 0; head < heads && work->partial >= 0; head++) {
          const int64_t index = (work->partial + row - work->row_begin) * heads + head;
          RC_ASSERT(index < list.num_partial_rows);
          RC_ASSERT(owner.emplace(index, std::tuple(b, head, row)).second);
        }
    }
    RC_ASSERT(static_cast<int64_t>(owner.size()) == list.num_partial_rows);
    int64_t merged = 0, num_rows = 0;
    for (const device::MergeWork& merge : list.merges) {
      RC_ASSERT(merge.num_parts >= 2);
      const int rows = merge.row_end - merge.row_begin;
      RC_ASSERT(rows > 0 && rows <= device::kMergeRows);
      num_rows += rows * heads;
      for (int part = 0; part < merge.num_parts; part++)
        for (int row = 0; row < rows; row++)
          for (int head = 0; head < heads; head++, merged++) {
            const int64_t index =
                (merge.partial + row + int64_t{part} * merge.part_rows) * heads + head;
            const auto [b, its_head, its_row] = owner.at(index);
            RC_ASSERT(list.requests[b].query_start == merge.query_start);
            RC_ASSERT(its_head == head && its_row == merge.row_begin + row);
            owner.erase(index);
          }
    }
    RC_ASSERT(merged == list.num_partial_rows);
    RC_ASSERT(num_rows == list.num_merged_rows);
  }));
}

// Of many short ones, up to three quarters may come in the batch's order first, where the others
// keep each slot busy for half of what the longest takes.
TEST(GpuPlan, blocks_keep_their_bounds_and_the_longest_come_first) {
  ASSERT_TRUE(rc::check("all lengths, windows, tiles", [] {
    const Drawn drawn = draw();
    const Planned list = plan(drawn);
    RC_ASSERT(list.num_works.size() == drawn.tiles.size());
    const auto keys_of = [](const AttentionWork& work) { return work.key_end - work.key_begin; };
    const auto place_of = [](const AttentionWork& work) {
      return std::tuple(work.request, work.row_begin, work.key_begin);
    };
    size_t first = 0;
    for (size_t tile = 0; tile < drawn.tiles.size(); tile++) {
      const Machine& machine = drawn.tiles[tile];
      const auto count = static_cast<size_t>(list.num_works[tile]);
      RC_ASSERT(first + count <= list.works.size());
      const std::span<const AttentionWork> works(list.works.data() + first, count);
      first += count;
      int longest = 0;
      for (const AttentionWork& work : works) {
        RC_ASSERT(work.row_end - work.row_begin <= machine.tile_rows);
        longest = std::max(longest, keys_of(work));
      }
      // The last ones that come in order, and how many come as they are in the batch.
      const int not_told = std::max(longest / 1000, machine.tile_keys - 1);
      size_t ordered = count, mixed = 0;
      for (int most = 0; ordered > 0 && keys_of(works[ordered - 1]) >= most - not_told;)
        most = std::max(most, keys_of(works[--ordered]));
      while (mixed < count && (mixed == 0 || place_of(works[mixed]) > place_of(works[mixed - 1])))
        mixed++;
      if (ordered == 0) continue;
      RC_TAG("mixed");
      int64_t ordered_keys = 0;
      for (const AttentionWork& work : works.subspan(ordered)) ordered_keys += keys_of(work);
      RC_ASSERT(longest <= 2048);
      RC_ASSERT(ordered <= mixed && ordered <= count - count / 4);
      RC_ASSERT(2 * ordered_keys * drawn.spec.num_kv_heads >= int64_t{longest} * machine.num_slots);
    }
    RC_ASSERT(first == list.works.size());
    for (const AttentionWork& work : list.works) {
      RC_ASSERT(work.row_begin < work.row_end);
      RC_ASSERT(work.key_begin <= work.key_end);
      // Pieces of no keys would be merged for nothing.
      RC_ASSERT(work.partial < 0 || work.key_begin < work.key_end);
    }
  }));
}

TEST(GpuPlan, of_many_short_blocks_the_shortest_quarter_alone_is_put_in_order) {
  const Machine machine = machine_of(device_info("h200"), 2, 128, 64);
  const auto plan_prompts = [&](int count) {
    Lengths lengths;
    for (int b = 0; b < count; b++) lengths.add(512, 512);
    Planned list;
    plan_work(lengths.batch(), spec_of(8, 4), {&machine, 1}, 0, list);
    EXPECT_EQ(list.works.size(), 16u * count);  // tiles of 32 tokens
    return list.works;
  };
  const auto keys_of = [](const AttentionWork& work) { return work.key_end - work.key_begin; };
  // A prompt's 16 tiles see 1 to 8 blocks of 64 keys, two tiles each: the shortest quarter sees one
  // and two.
  std::vector<AttentionWork> works = plan_prompts(32);
  for (size_t i = 1; i < 32 * 12; i++) {
    EXPECT_GT(keys_of(works[i]), 128) << i;
    EXPECT_LT(std::tuple(works[i - 1].request, works[i - 1].row_begin),
              std::tuple(works[i].request, works[i].row_begin))
        << i;
  }
  for (size_t i = 32 * 12; i < works.size(); i++)
    EXPECT_EQ((keys_of(works[i]) + 63) / 64, i < 32 * 14 ? 2 : 1) << i;
  // Too few to even out the end, as there are, or as are short: the longest come first.
  works = plan_prompts(4);
  for (size_t i = 1; i < works.size(); i++)
    EXPECT_LE((keys_of(works[i]) + 63) / 64, (keys_of(works[i - 1]) + 63) / 64) << i;
  Lengths lengths;
  for (int b = 0; b < 1200; b++) lengths.add(1, 60);
  for (int b = 0; b < 3; b++) lengths.add(1, 2040);
  Planned list;
  plan_work(lengths.batch(), spec_of(8, 4), {&machine, 1}, 0, list);
  for (size_t i = 0; i < 3; i++) EXPECT_EQ(keys_of(list.works[i]), 2040);
}

TEST(GpuPlan, tiles_take_no_request_that_is_too_long_for_them) {
  ASSERT_TRUE(rc::check("all lengths, tiles", [] {
    const Drawn drawn = draw();
    const Planned list = plan(drawn);
    size_t first = 0;
    for (size_t i = 0; i < drawn.tiles.size(); i++) {
      std::map<int, int64_t> rows;  // of each request, in works of this tile
      for (const size_t end = first + static_cast<size_t>(list.num_works[i]); first < end; first++)
        rows[list.works[first].request] =
            std::max<int64_t>(rows[list.works[first].request], list.works[first].row_end);
      for (const auto& [request, count] : rows)
        RC_ASSERT((count - 1) / drawn.tiles[i].tile_rows < drawn.tiles[i].max_request_tiles);
    }
  }));
}

// Rows that see nothing, but for the last few: samples of tiles miss what those take.
TEST(GpuPlan, times_that_were_sampled_badly_do_not_cut_without_end) {
  Lengths lengths;
  lengths.add(100'000, 4'000);
  const Machine machine{132, 0.05, 1500, 16, 32};
  Planned list;
  plan_work(lengths.batch(), spec_of(1, 1), {&machine, 1}, 0, list);
  EXPECT_FALSE(list.merges.empty());
  EXPECT_LE(list.works.size(), 100'000u / 16 + 2 * 132);
}

TEST(GpuPlan, one_token_keeps_every_slot_busy) {
  for (const int32_t keys : {100'000, 1'000'000}) {
    Lengths lengths;
    lengths.add(1, keys);
    const Machine machine = machine_of(device_info("h200"), 2, 16, 64);
    Planned list;
    plan_work(lengths.batch(), spec_of(8, 4), {&machine, 1}, 0, list);
    std::vector<double> blocks;  // their keys
    for (const AttentionWork& work : list.works)
      blocks.insert(blocks.end(), 8, work.key_end - work.key_begin);
    EXPECT_GE(std::ssize(blocks), machine.num_slots * 9 / 10);
    EXPECT_LT(makespan(blocks, machine.num_slots), 1.35 * keys * 8 / machine.num_slots);
  }
}

TEST(GpuPlan, long_prefill_is_not_cut) {
  Lengths lengths;
  lengths.add(16384, 16384);
  Planned list;
  const Machine machine = machine_of(device_info("h200"), 2, 128, 32);
  plan_work(lengths.batch(), spec_of(8, 4), {&machine, 1}, 0, list);
  EXPECT_TRUE(list.merges.empty());
  EXPECT_EQ(list.works.size(), 16384u * 4 / 128);
}

// The tiles of a GPU as they come for head dim 128: 16 rows for decoding, 128 for prefill.
std::array<Machine, 2> tiles_of_h200() {
  const DeviceInfo h200 = device_info("h200");
  return {machine_of(h200, 6, 16, 32), machine_of(h200, 2, 128, 64)};
}

TEST(GpuPlan, decoding_takes_the_small_tile_and_prefill_the_large_one) {
  Planned list;
  Lengths decoding, prefill;
  for (int b = 0; b < 64; b++) decoding.add(1, 4000);
  prefill.add(2048, 4096);
  plan_work(decoding.batch(), spec_of(8, 4), tiles_of_h200(), 0, list);
  EXPECT_GT(list.num_works[0], 0);
  EXPECT_EQ(list.num_works[1], 0);
  plan_work(prefill.batch(), spec_of(8, 4), tiles_of_h200(), 0, list);
  EXPECT_EQ(list.num_works[0], 0);
  EXPECT_GT(list.num_works[1], 0);
}

// As docs/notes/2026-12-01-medium-tile.md has measured them.
TEST(GpuPlan, with_large_heads_short_causal_prompts_alone_take_two_blocks_an_sm) {
  const Machine tiles[] = {machine_of(device_info("h200"), 2, 64, 64),
                           machine_of(device_info("h200"), 1, 128, 128, /*halves_blocks=*/true)};
  const auto takes_the_large_one = [&](int length, bool causal) {
    AttentionSpec spec = spec_of(8, 4);
    spec.head_dim_qk = 256;
    spec.causal = causal;
    Lengths lengths;
    for (int b = 0; b < 16384 / length; b++) lengths.add(length, length);
    Planned list;
    plan_work(lengths.batch(), spec, tiles, 0, list);
    EXPECT_EQ(std::min(list.num_works[0], list.num_works[1]), 0);
    return list.num_works[1] > 0;
  };
  EXPECT_FALSE(takes_the_large_one(512, true));
  EXPECT_TRUE(takes_the_large_one(512, false));
  for (const int length : {1024, 2048, 4096, 8192, 16384})
    for (const bool causal : {true, false}) EXPECT_TRUE(takes_the_large_one(length, causal));
}

TEST(GpuPlan, a_mixed_batch_takes_two_launches_where_both_are_long) {
  Planned list;
  Lengths long_ones, short_ones;
  for (int b = 0; b < 64; b++) long_ones.add(1, 16000);
  for (int b = 0; b < 8; b++) short_ones.add(1, 5);
  long_ones.add(4096, 8192), short_ones.add(1024, 1024);
  plan_work(long_ones.batch(), spec_of(8, 4), tiles_of_h200(), 0, list);
  EXPECT_GT(list.num_works[0], 0);
  EXPECT_GT(list.num_works[1], 0);
  plan_work(short_ones.batch(), spec_of(8, 4), tiles_of_h200(), 0, list);
  EXPECT_TRUE(list.num_works[0] == 0 || list.num_works[1] == 0);
  // Where bits depend on nothing else, each request has its own best.
  AttentionSpec invariant = spec_of(8, 4);
  invariant.batch_invariant = true;
  plan_work(short_ones.batch(), invariant, tiles_of_h200(), 0, list);
  EXPECT_GT(list.num_works[0], 0);
  EXPECT_GT(list.num_works[1], 0);
}

TEST(GpuPlan, batch_invariant_works_depend_on_the_request_alone) {
  ASSERT_TRUE(rc::check("alone and beside others", [] {
    Drawn drawn = draw();
    drawn.spec.batch_invariant = true;
    const Planned together = plan(drawn);
    for (int32_t b = 0; b < drawn.lengths.batch().num_requests(); b++) {
      Drawn alone = drawn;
      alone.lengths = Lengths();
      const int32_t query_len = static_cast<int32_t>(drawn.lengths.batch().query_len(b));
      alone.lengths.add(query_len, drawn.lengths.kv_len[b]);
      for (Machine& tile : alone.tiles) tile.num_slots *= 3;  // of a larger GPU
      using Cut = std::tuple<int, int, int, int>;
      const auto cuts_of = [](const Planned& list, int request) {
        std::vector<Cut> cuts;
        for (const AttentionWork& work : list.works)
          if (work.request == request)
            cuts.emplace_back(work.row_begin, work.row_end, work.key_begin, work.key_end);
        std::sort(cuts.begin(), cuts.end());
        return cuts;
      };
      RC_ASSERT(cuts_of(together, b) == cuts_of(plan(alone), 0));
    }
  }));
}

TEST(GpuPlan, requests_know_their_pages_rows_and_mask_bits) {
  Lengths lengths;
  lengths.add(2, 5);
  lengths.add(0, 7);
  lengths.add(3, 4);
  AttentionSpec spec = spec_of(2, 1);
  spec.page_size = 0;
  Planned list;
  const Machine machine;
  plan_work(lengths.batch(), spec, {&machine, 1}, 0, list);
  EXPECT_EQ(list.requests[2].kv_start, 12);
  EXPECT_EQ(list.requests[2].query_start, 2);
  EXPECT_EQ(list.requests[2].mask_bit, 10);
  spec.page_size = 16;
  plan_work(lengths.batch(), spec, {&machine, 1}, 9, list);
  EXPECT_EQ(list.requests[2].first_page, 18);
  EXPECT_EQ(list.requests[2].kv_start, 0);
  // Of a table that is staged, only what lengths ask for.
  plan_work(lengths.batch(), spec, {&machine, 1}, std::nullopt, list);
  EXPECT_EQ(list.requests[2].first_page, 2);
}

TEST(GpuPlan, whole_tiles_of_any_group_take_the_keys_that_their_rows_see) {
  const int query_len = 150, kv_len = 400;
  Lengths lengths;
  lengths.add(query_len, kv_len);
  Machine machine;  // of one slot: nothing is cut
  machine.tile_rows = 16;
  for (const Window window : {Window{-1, -1}, Window{60, -1}, Window{60, 20}})
    for (int group = 1; group <= 9; group++) {
      AttentionSpec spec = spec_of(1, group);
      spec.window = window;
      spec.causal = window.right == -1;
      Planned list;
      plan_work(lengths.batch(), spec, {&machine, 1}, 0, list);
      ASSERT_EQ(list.works.size(), (query_len * group + 15) / 16);
      for (const AttentionWork& work : list.works) {
        int begin = kv_len, end = 0;
        for (int i = work.row_begin / group; i <= (work.row_end - 1) / group; i++)
          for (int j = 0; j < kv_len; j++)
            if (sees(spec, i, j, query_len, kv_len)) begin = std::min(begin, j), end = j + 1;
        EXPECT_EQ(work.key_begin, begin) << group << ' ' << work.row_begin;
        EXPECT_EQ(work.key_end, end) << group << ' ' << work.row_begin;
      }
    }
}

TEST(GpuPlan, works_bring_their_requests_numbers) {
  Lengths lengths;
  lengths.add(2, 500);
  lengths.add(0, 7);
  lengths.add(300, 400);
  AttentionSpec spec = spec_of(2, 1);
  spec.page_size = 16;
  Planned list;
  const Machine machine;
  plan_work(lengths.batch(), spec, {&machine, 1}, std::nullopt, list);
  ASSERT_GT(list.works.size(), 2u);
  for (const AttentionWork& work : list.works)
    EXPECT_EQ(std::memcmp(&work.of_request, &list.requests[work.request],
                          sizeof(device::AttentionRequest)),
              0);
}

}  // namespace
}  // namespace rapt::gpu
