#include "plan/cpu_plan.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

namespace rapt::cpu {
namespace {

// A batch that owns its lengths; planning reads nothing else of it.
struct Lengths {
  std::vector<int32_t> query_start{0}, kv_len;
  void add(int32_t query_len, int32_t keys) {
    query_start.push_back(query_start.back() + query_len);
    kv_len.push_back(keys);
  }
  Batch batch() const {
    Batch batch;
    batch.query_start = query_start;
    batch.kv_len = kv_len;
    return batch;
  }
};

AttentionSpec spec_of(int32_t kv_heads, int32_t group, int32_t dim = 64) {
  AttentionSpec spec;
  spec.num_query_heads = kv_heads * group;
  spec.num_kv_heads = kv_heads;
  spec.head_dim_qk = dim;
  return spec;
}

// So slow that small batches are worth cutting.
Machine slow_machine(int32_t num_threads) {
  Machine machine;
  machine.num_threads = num_threads;
  machine.read_bytes_per_ns = 0.01;
  machine.flops_per_ns = 0.1;
  machine.decode_scratch_bytes = 100;
  machine.prefill_scratch_bytes = 1000;
  return machine;
}

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
  Machine machine;
};

Drawn draw() {
  Drawn drawn;
  auto in = [](int low, int high) { return *rc::gen::inRange(low, high + 1); };
  drawn.spec = spec_of(in(1, 5), in(1, 9), 8 * in(1, 16));
  drawn.spec.page_size = *rc::gen::element(0, 1, 5, 16, 48, 64, 100, 256);
  drawn.spec.causal = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) drawn.spec.window = {in(-1, 300), in(-1, 20)};
  drawn.spec.batch_invariant = *rc::gen::arbitrary<bool>();
  for (int b = in(0, 6); b > 0; b--)
    drawn.lengths.add(*rc::gen::element(0, 1, 1, 2, 5, in(1, 150)),
                      *rc::gen::element(0, 1, in(1, 100), in(1, 1500)));
  drawn.machine = slow_machine(in(1, 12));
  drawn.machine.max_prefill_rows = *rc::gen::element(32, 96, 384);
  return drawn;
}

using RowKey = std::tuple<int32_t, int32_t, int32_t>;  // request, KV head, row

// Works by the rows they hold.
std::map<RowKey, std::vector<const Work*>> by_row(const WorkList& list) {
  std::map<RowKey, std::vector<const Work*>> rows;
  for (const Work& work : list.works)
    for (int32_t head = work.kv_head_begin; head < work.kv_head_end; head++)
      for (int32_t row = work.row_begin; row < work.row_end; row++)
        rows[{work.request, head, row}].push_back(&work);
  return rows;
}

TEST(CpuPlan, covers_every_row_and_visible_key_exactly_once) {
  ASSERT_TRUE(rc::check([] {
    const Drawn drawn = draw();
    const Batch batch = drawn.lengths.batch();
    WorkList list;
    plan_work(batch, drawn.spec, drawn.machine, list);
    const auto rows = by_row(list);
    size_t num_rows = 0;
    for (int64_t b = 0; b < batch.num_requests(); b++) {
      const int64_t query_len = batch.query_len(b), kv_len = batch.kv_len[b];
      for (int64_t row = 0; row < query_len * drawn.spec.group(); row++)
        for (int32_t head = 0; head < drawn.spec.num_kv_heads; head++, num_rows++) {
          const auto found = rows.find({int32_t(b), head, int32_t(row)});
          RC_ASSERT(found != rows.end());
          std::vector<int32_t> times(static_cast<size_t>(kv_len));
          for (const Work* work : found->second) {
            RC_ASSERT(work->key_begin >= 0 && work->key_end <= kv_len);
            for (int32_t j = work->key_begin; j < work->key_end; j++) times[j]++;
          }
          for (int64_t j = 0; j < kv_len; j++) {
            const bool seen = sees(drawn.spec, row / drawn.spec.group(), j, query_len, kv_len);
            RC_ASSERT((seen ? times[j] == 1 : times[j] <= 1));
          }
        }
    }
    RC_ASSERT(rows.size() == num_rows);  // nothing for padding requests
  }));
}

TEST(CpuPlan, phases_rows_and_ranges_keep_their_bounds) {
  ASSERT_TRUE(rc::check([] {
    const Drawn drawn = draw();
    const Batch batch = drawn.lengths.batch();
    WorkList list;
    plan_work(batch, drawn.spec, drawn.machine, list);
    for (const Work& work : list.works) {
      const int64_t rows = batch.query_len(work.request) * drawn.spec.group();
      const bool decode = rows <= drawn.machine.max_decode_rows;
      RC_ASSERT((work.phase == Phase::kDecode) == decode);
      RC_ASSERT(work.row_end - work.row_begin <=
                (decode ? drawn.machine.max_decode_rows : drawn.machine.max_prefill_rows));
      if (!decode) RC_ASSERT(work.kv_head_end - work.kv_head_begin == 1);
    }
    RC_ASSERT(list.ranges.back() == static_cast<int32_t>(list.works.size()));
    RC_ASSERT(list.works.empty() || list.ranges.front() == 0);
    RC_ASSERT(std::adjacent_find(list.ranges.begin(), list.ranges.end(), std::greater_equal<>()) ==
              list.ranges.end());
    RC_ASSERT(list.num_slots <= drawn.machine.num_threads);
  }));
}

TEST(CpuPlan, partial_rows_are_written_once_and_merged_once) {
  ASSERT_TRUE(rc::check([] {
    const Drawn drawn = draw();
    WorkList list;
    plan_work(drawn.lengths.batch(), drawn.spec, drawn.machine, list);
    // Whose row each slot holds, and how often it was taken.
    std::vector<RowKey> owner(static_cast<size_t>(list.num_partial_rows));
    std::vector<int32_t> written(owner.size()), merged(owner.size());
    std::map<RowKey, int32_t> parts;
    for (const Work& work : list.works) {
      if (work.partial < 0) continue;
      int64_t slot = work.partial;
      for (int32_t head = work.kv_head_begin; head < work.kv_head_end; head++)
        for (int32_t row = work.row_begin; row < work.row_end; row++, slot++) {
          RC_ASSERT(slot < list.num_partial_rows);
          owner[slot] = {work.request, head, row};
          parts[owner[slot]]++;
          written[slot]++;
        }
    }
    RC_ASSERT(std::all_of(written.begin(), written.end(), [](int32_t n) { return n == 1; }));
    int64_t num_rows = 0;
    for (const Merge& merge : list.merges) {
      RC_ASSERT(merge.first_row == num_rows);
      RC_ASSERT(merge.num_parts >= 2);
      const int64_t heads = merge.kv_head_end - merge.kv_head_begin;
      const int64_t rows = merge.row_end - merge.row_begin;
      for (int64_t s = 0; s < merge.num_parts; s++)
        for (int64_t i = 0; i < heads * rows; i++) {
          const int64_t slot = merge.partial + s * heads * rows + i;
          const RowKey row{merge.request, merge.kv_head_begin + int32_t(i / rows),
                           merge.row_begin + int32_t(i % rows)};
          RC_ASSERT(owner[slot] == row);
          RC_ASSERT(parts[row] == merge.num_parts);
          merged[slot]++;
        }
      num_rows += heads * rows;
    }
    RC_ASSERT(num_rows == list.num_merged_rows);
    RC_ASSERT(std::all_of(merged.begin(), merged.end(), [](int32_t n) { return n == 1; }));
    // Rows of a work without partials are nobody else's.
    for (const auto& [row, works] : by_row(list))
      RC_ASSERT(works.size() == 1 || works[0]->partial >= 0);
  }));
}

TEST(CpuPlan, workspace_is_exact) {
  Lengths lengths;
  lengths.add(1, 1000);
  WorkList list;
  const AttentionSpec spec = spec_of(2, 3, 72);
  plan_work(lengths.batch(), spec, slow_machine(4), list);
  ASSERT_GT(list.num_partial_rows, 0);
  // 100 bytes of scratch take 128; a partial row of 72 floats takes 5 lines of 64 bytes.
  EXPECT_EQ(list.scratch_stride, 128u);
  EXPECT_EQ(list.partial_stride, 80);
  EXPECT_EQ(list.partial_out_offset, 128u * list.num_slots);
  EXPECT_EQ(list.partial_lse_offset, list.partial_out_offset + 320u * list.num_partial_rows);
  const size_t lse_bytes = (4u * list.num_partial_rows + 63) / 64 * 64;
  EXPECT_EQ(list.workspace_bytes, list.partial_lse_offset + lse_bytes);
}

// One thread, so that keys are not cut.
TEST(CpuPlan, works_of_more_keys_than_a_chain_have_room_to_be_folded) {
  AttentionSpec spec = spec_of(2, 3, 72);
  WorkList list;
  for (const bool prefill : {false, true}) {
    // Kernel scratch of 100 bytes takes 128, of 1000 1024.
    const size_t kernel = prefill ? 1024 : 128, rows = prefill ? 60 : 2 * 3 * 2;
    const auto plan = [&](int32_t kv_len) {
      Lengths lengths;
      lengths.add(prefill ? 20 : 2, kv_len);
      plan_work(lengths.batch(), spec, slow_machine(1), list);
      EXPECT_EQ(list.num_partial_rows, 0);
      EXPECT_EQ(list.fold_offset, kernel);
      EXPECT_EQ(list.workspace_bytes, list.scratch_stride);
    };
    plan(kMaxChainKeys);
    EXPECT_EQ(list.scratch_stride, kernel);
    plan(kMaxChainKeys + 1);
    // A row of 80 elements: fp32 of a part, fp64 of the state; two states of 16 bytes, and an lse.
    const auto lines = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
    EXPECT_EQ(list.scratch_stride,
              kernel + rows * (320 + 640) + lines(4 * rows) + 2 * lines(8 * rows));
  }
}

TEST(CpuPlan, scratch_is_that_of_the_phases_there_are) {
  ASSERT_TRUE(rc::check([] {
    const Drawn drawn = draw();
    WorkList list;
    plan_work(drawn.lengths.batch(), drawn.spec, drawn.machine, list);
    const auto has = [&](Phase phase) {
      return std::any_of(list.works.begin(), list.works.end(),
                         [&](const Work& work) { return work.phase == phase; });
    };
    // 100 bytes of scratch take 128, and 1000 take 1024.
    const size_t scratch = has(Phase::kPrefill) ? 1024 : has(Phase::kDecode) ? 128 : 0;
    RC_ASSERT(list.scratch_stride == scratch);
    RC_ASSERT(list.partial_out_offset == scratch * static_cast<size_t>(list.num_slots));
    RC_ASSERT(list.workspace_bytes >= list.partial_lse_offset);
  }));
}

TEST(CpuPlan, a_batch_without_work_needs_nothing) {
  Lengths lengths;
  WorkList list;
  plan_work(lengths.batch(), spec_of(2, 2), slow_machine(4), list);
  EXPECT_EQ(list.num_ranges(), 0);
  EXPECT_EQ(list.workspace_bytes, 0u);
  for (int b = 0; b < 3; b++) lengths.add(0, 100);
  plan_work(lengths.batch(), spec_of(2, 2), slow_machine(4), list);
  EXPECT_TRUE(list.works.empty());
  EXPECT_EQ(list.workspace_bytes, 0u);
}

TEST(CpuPlan, keys_left_of_the_window_are_in_no_work) {
  Lengths lengths;
  lengths.add(1, 100000);
  AttentionSpec spec = spec_of(1, 1);
  spec.window = sliding_window(1000);
  WorkList list;
  plan_work(lengths.batch(), spec, slow_machine(3), list);
  int64_t keys = 0;
  for (const Work& work : list.works) {
    EXPECT_GE(work.key_begin, 99000);
    keys += work.key_end - work.key_begin;
  }
  EXPECT_EQ(keys, 1000);
}

// Keys times heads of the longest range over those of the mean range.
double imbalance(const WorkList& list) {
  std::vector<double> sums;
  for (int32_t i = 0; i < list.num_ranges(); i++) {
    sums.push_back(0);
    for (int32_t w = list.ranges[i]; w < list.ranges[i + 1]; w++)
      sums.back() += double(list.works[w].key_end - list.works[w].key_begin) *
                     (list.works[w].kv_head_end - list.works[w].kv_head_begin);
  }
  const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
  return *std::max_element(sums.begin(), sums.end()) * double(sums.size()) / total;
}

TEST(CpuPlan, decode_ranges_cost_alike) {
  rc::check("long and short requests together", [] {
    Lengths lengths;
    const int requests = *rc::gen::inRange(1, 40);
    for (int b = 0; b < requests; b++)
      lengths.add(1, *rc::gen::element(1, 300, 5000, *rc::gen::inRange(1, 60000)));
    lengths.add(1, 60000);
    AttentionSpec spec = spec_of(8, 4, 128);
    Machine machine;
    machine.num_threads = *rc::gen::inRange(2, 17);
    WorkList list;
    plan_work(lengths.batch(), spec, machine, list);
    RC_ASSERT(list.num_ranges() >= machine.num_threads);
    // 60000 keys over at most 16 * 8 ranges: the shortest mean range is 468 keys, and a cut moves
    // by less than the shortest piece (about 50 keys) and the alignment (64).
    RC_ASSERT(imbalance(list) < 1.3);
  });
}

TEST(CpuPlan, one_request_keeps_every_thread_busy) {
  for (int32_t threads : {2, 3, 8, 64}) {
    Lengths lengths;
    lengths.add(1, 8192);
    Machine machine;
    machine.num_threads = threads;
    WorkList list;
    plan_work(lengths.batch(), spec_of(8, 4, 128), machine, list);
    EXPECT_EQ(list.num_slots, threads);
    EXPECT_LT(imbalance(list), threads == 64 ? 2.1 : 1.2) << threads;
  }
}

// Each prefill work packs all its keys: none is a small rest, and keys are not cut for balance.
TEST(CpuPlan, prefill_works_are_of_one_size) {
  for (int32_t threads : {2, 3, 4, 8})
    for (int32_t query_len : {512, 700}) {
      Lengths lengths;
      lengths.add(query_len, 4096);
      AttentionSpec spec = spec_of(8, 4, 128);
      spec.causal = false;
      Machine machine;
      machine.num_threads = threads;
      machine.max_prefill_rows = 2304;
      WorkList list;
      plan_work(lengths.batch(), spec, machine, list);
      EXPECT_EQ(list.num_partial_rows, 0);
      int32_t least = 4 * query_len, most = 0;
      std::vector<double> rows(list.num_ranges());
      for (int32_t i = 0; i < list.num_ranges(); i++)
        for (int32_t w = list.ranges[i]; w < list.ranges[i + 1]; w++) {
          const int32_t here = list.works[w].row_end - list.works[w].row_begin;
          rows[i] += here;
          least = std::min(least, here), most = std::max(most, here);
        }
      EXPECT_LE(most - least, 2 * 96) << threads << " threads, " << query_len << " queries";
      const double mean = 8.0 * 4 * query_len / list.num_ranges();
      EXPECT_LE(*std::max_element(rows.begin(), rows.end()), 1.5 * mean + 2 * 96);
    }
}

// A tile more of each of 8 heads packs their keys once more: it must be worth it.
TEST(CpuPlan, prefill_tiles_fill_the_threads_and_are_no_more_than_that) {
  for (auto [threads, works] :
       {std::pair{1, 8}, {2, 8}, {4, 8}, {8, 8}, {16, 16}, {3, 24}, {12, 24}}) {
    Lengths lengths;
    lengths.add(512, 2048);
    AttentionSpec spec = spec_of(8, 4, 128);
    spec.dtype = DType::kBFloat16;
    Machine machine;
    machine.num_threads = threads;
    machine.max_prefill_rows = 2304;
    machine.flops_per_ns = 700;
    WorkList list;
    plan_work(lengths.batch(), spec, machine, list);
    EXPECT_EQ(list.works.size(), static_cast<size_t>(works)) << threads << " threads";
    EXPECT_EQ(list.num_partial_rows, 0);
    EXPECT_GE(list.num_ranges(), threads);
  }
}

TEST(CpuPlan, heads_are_parted_where_keys_are_few) {
  Lengths lengths;
  lengths.add(1, 60);
  Machine machine = slow_machine(8);
  WorkList list;
  plan_work(lengths.batch(), spec_of(8, 1), machine, list);
  EXPECT_GE(list.works.size(), 8u);
  EXPECT_EQ(list.num_partial_rows, 0);
}

// What of a work is the request's own.
std::vector<std::vector<int32_t>> works_of(const WorkList& list, int32_t request) {
  std::vector<std::vector<int32_t>> works;
  for (const Work& work : list.works)
    if (work.request == request)
      works.push_back({work.kv_head_begin, work.kv_head_end, work.row_begin, work.row_end,
                       work.key_begin, work.key_end, int32_t(work.phase), work.partial >= 0});
  return works;
}

TEST(CpuPlan, batch_invariant_work_depends_on_the_request_alone) {
  ASSERT_TRUE(rc::check([] {
    Drawn drawn = draw();
    drawn.spec.batch_invariant = true;
    WorkList together, alone;
    plan_work(drawn.lengths.batch(), drawn.spec, drawn.machine, together);
    Machine other = drawn.machine;
    other.num_threads = *rc::gen::inRange(1, 100);
    for (size_t b = 0; b < drawn.lengths.kv_len.size(); b++) {
      Lengths one;
      one.add(drawn.lengths.query_start[b + 1] - drawn.lengths.query_start[b],
              drawn.lengths.kv_len[b]);
      plan_work(one.batch(), drawn.spec, other, alone);
      RC_ASSERT(works_of(alone, 0) == works_of(together, int32_t(b)));
    }
  }));
}

TEST(CpuPlan, batch_invariant_still_splits_long_requests) {
  Lengths lengths;
  lengths.add(1, 100000);
  AttentionSpec spec = spec_of(8, 4, 128);
  spec.batch_invariant = true;
  WorkList list;
  plan_work(lengths.batch(), spec, Machine{}, list);
  EXPECT_GE(list.works.size(), 16u);
}

template <typename T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

TEST(CpuPlan, bytes_do_not_depend_on_what_the_memory_held) {
  static_assert(std::has_unique_object_representations_v<Work>);
  static_assert(std::has_unique_object_representations_v<Merge>);
  ASSERT_TRUE(rc::check([] {
    const Drawn drawn = draw();
    WorkList fresh, used;
    Lengths others;
    for (int b = 0; b < 8; b++) others.add(b % 3, 3000 * b);
    plan_work(others.batch(), drawn.spec, drawn.machine, used);
    if (!used.works.empty()) std::memset(used.works.data(), 0x7f, used.works.size() * sizeof(Work));
    plan_work(drawn.lengths.batch(), drawn.spec, drawn.machine, fresh);
    plan_work(drawn.lengths.batch(), drawn.spec, drawn.machine, used);
    RC_ASSERT(same_bytes(fresh.works, used.works));
    RC_ASSERT(same_bytes(fresh.merges, used.merges));
    RC_ASSERT(fresh.ranges == used.ranges);
    RC_ASSERT(fresh.workspace_bytes == used.workspace_bytes);
  }));
}

// 2^22 keys of 128 + 128 bf16 wrap 32-bit byte counts.
TEST(CpuPlan, long_contexts_do_not_wrap) {
  for (int32_t kv_len : {1 << 20, 1 << 22, 5'000'000, 1 << 30}) {
    Lengths lengths;
    lengths.add(1, kv_len);
    WorkList list;
    plan_work(lengths.batch(), spec_of(1, 1, 128), Machine{.num_threads = 2}, list);
    int64_t keys = 0;
    for (const Work& work : list.works) {
      ASSERT_GT(work.key_end, work.key_begin);
      keys += work.key_end - work.key_begin;
    }
    EXPECT_EQ(keys, kv_len);
    EXPECT_LT(imbalance(list), 1.1);
  }
  Lengths prefill;
  prefill.add(8192, 524288);
  WorkList list;
  plan_work(prefill.batch(), spec_of(8, 4, 128), Machine{.num_threads = 2}, list);
  int64_t rows = 0;
  for (const Work& work : list.works)
    if (work.key_begin == 0) rows += work.row_end - work.row_begin;
  EXPECT_EQ(rows, int64_t{8192} * 4 * 8);
}

}  // namespace
}  // namespace rapt::cpu
