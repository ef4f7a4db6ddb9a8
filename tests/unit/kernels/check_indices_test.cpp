// Finding bad page ids and slots on the emulator, which ends every array at an unreadable page.
#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "cache_kernels.hpp"
#include "kernels/abi/attention.hpp"

namespace rapt::emulator {
namespace {

using Found = std::vector<std::pair<long long, long long>>;
constexpr std::pair<long long, long long> kNone{-1, 0};

Found pairs_of(std::span<const device::BadIndex> found) {
  Found pairs;
  for (const device::BadIndex& one : found) pairs.emplace_back(one.position, one.value);
  return pairs;
}

constexpr int kPages = 50, kPageSize = 8, kWidth = 70;

// Rows of kWidth entries, good but for those that are said: {row, entry, id}.
struct Wrong {
  size_t row, entry;
  int id;
};

Found check(const std::vector<int>& kv_len, const std::vector<Wrong>& wrong) {
  Memory memory;
  const auto requests = memory.allocate<device::AttentionRequest>(kv_len.size(), "requests");
  // Nothing lies behind the last entry that the last request's length makes a step read.
  const auto last_entries = static_cast<size_t>((kv_len.back() + kPageSize - 1) / kPageSize);
  const auto ids = memory.allocate<int>((kv_len.size() - 1) * kWidth + last_entries, "page ids");
  for (size_t i = 0; i < ids.size(); i++) ids[i] = static_cast<int>(i * 7 % kPages);
  for (const Wrong& one : wrong) ids[one.row * kWidth + one.entry] = one.id;
  for (size_t b = 0; b < kv_len.size(); b++) {
    requests[b] = {};
    requests[b].kv_len = kv_len[b];
    requests[b].first_page = static_cast<long long>(b) * kWidth;
  }
  const auto found = memory.allocate<device::BadIndex>(kv_len.size(), "found");
  run_check_page_ids(memory, {},
                     {.requests = requests.data(),
                      .page_ids = ids.data(),
                      .found = found.data(),
                      .num_requests = static_cast<int>(kv_len.size()),
                      .num_pages = kPages,
                      .page_size = kPageSize});
  return pairs_of(found);
}

TEST(CheckPageIdsKernel, passes_the_pool) {
  EXPECT_EQ(check({0, 1, 8, 9, 560, 256, 257}, {{2, 0, kPages - 1}, {4, 69, 0}}), Found(7, kNone));
}

TEST(CheckPageIdsKernel, finds_the_first_of_each_request) {
  Found expected(6, kNone);
  expected[0] = {0, -1};
  expected[2] = {1, kPages};                           // the last of two
  expected[3] = {33, 1 << 30};                         // and a later one behind it
  expected[5] = {3, std::numeric_limits<int>::min()};  // and one in the next lane
  EXPECT_EQ(check({1, 30, 9, 560, 560, 257}, {{0, 0, -1},
                                              {2, 1, kPages},
                                              {3, 33, 1 << 30},
                                              {3, 34, -7},
                                              {3, 65, -8},
                                              {5, 3, std::numeric_limits<int>::min()},
                                              {5, 4, -2}}),
            expected);
}

TEST(CheckPageIdsKernel, looks_at_nothing_past_the_lengths) {
  EXPECT_EQ(check({0, 8, 9, 256, 8}, {{0, 0, -1}, {1, 1, kPages}, {2, 2, -1}, {3, 32, -1}}),
            Found(5, kNone));
}

constexpr long long kEnd = 400;

Found check_slots(size_t num_slots, const std::vector<std::pair<size_t, long long>>& wrong) {
  Memory memory;
  const auto slots = memory.allocate<long long>(num_slots, "slots");
  for (size_t i = 0; i < num_slots; i++)
    slots[i] = i % 5 == 0 ? -static_cast<long long>(i) - 1 : static_cast<long long>(i * 3 % kEnd);
  for (const auto& [at, slot] : wrong) slots[at] = slot;
  const auto found =
      memory.allocate<device::BadIndex>((num_slots - 1) / device::kCheckedSlots + 1, "found");
  run_check_slots(memory, {},
                  {.slots = slots.data(),
                   .found = found.data(),
                   .num_slots = static_cast<long long>(num_slots),
                   .end = kEnd});
  return pairs_of(found);
}

TEST(CheckSlotsKernel, finds_the_first_of_each_share) {
  constexpr long long kShare = device::kCheckedSlots;
  constexpr long long kFarthest = std::numeric_limits<long long>::max();
  EXPECT_EQ(check_slots(1, {{0, kEnd - 1}}), Found({kNone}));
  EXPECT_EQ(check_slots(3, {{0, std::numeric_limits<long long>::min()}}), Found({kNone}));
  EXPECT_EQ(check_slots(3, {{2, kEnd}}), Found({{2, kEnd}}));
  EXPECT_EQ(check_slots(5 * kShare + 40, {{kShare - 1, kEnd + 1},
                                          {2 * kShare, kFarthest},
                                          {2 * kShare + 1, kEnd},
                                          {5 * kShare + 39, kEnd + (1LL << 32)}}),
            Found({{kShare - 1, kEnd + 1},
                   kNone,
                   {2 * kShare, kFarthest},
                   kNone,
                   kNone,
                   {5 * kShare + 39, kEnd + (1LL << 32)}}));
}

// Positions below the end of cos_sin; slots of which every third is negative, or none.
Found check_positions(bool wide, bool slots_too,
                      const std::vector<std::pair<size_t, long long>>& wrong) {
  constexpr size_t kCount = device::kCheckedSlots + 7;
  Memory memory;
  const auto slots = memory.allocate<long long>(kCount, "slots");
  const auto narrow = memory.allocate<int>(kCount, "int32 positions");
  const auto positions = memory.allocate<long long>(kCount, "int64 positions");
  for (size_t i = 0; i < kCount; i++) {
    slots[i] = i % 3 == 0 ? -1 : 1;
    positions[i] = static_cast<long long>(i) % kEnd;
  }
  for (const auto& [at, position] : wrong) positions[at] = position;
  for (size_t i = 0; i < kCount; i++) narrow[i] = static_cast<int>(positions[i]);
  const auto found = memory.allocate<device::BadIndex>(2, "found");
  run_check_positions(memory, {},
                      {.positions = wide ? static_cast<const void*>(positions.data())
                                         : static_cast<const void*>(narrow.data()),
                       .slots = slots_too ? slots.data() : nullptr,
                       .found = found.data(),
                       .num_positions = kCount,
                       .end = kEnd,
                       .position_bytes = wide ? 8 : 4});
  return pairs_of(found);
}

TEST(CheckPositionsKernel, passes_over_tokens_that_are_not_written) {
  constexpr long long kLast = device::kCheckedSlots + 6;
  for (const bool wide : {false, true}) {
    EXPECT_EQ(check_positions(wide, false, {}), Found({kNone, kNone}));
    EXPECT_EQ(check_positions(wide, false, {{9, -2}, {10, kEnd}, {kLast, kEnd}}),
              Found({{9, -2}, {kLast, kEnd}}));
    EXPECT_EQ(check_positions(wide, true, {{9, -2}, {10, kEnd}, {kLast, -1}}),
              Found({{10, kEnd}, {kLast, -1}}));
    EXPECT_EQ(check_positions(wide, true, {{9, -2}, {12, kEnd}}), Found({kNone, kNone}));
  }
  EXPECT_EQ(check_positions(true, false, {{5, 1LL << 32}}), Found({{5, 1LL << 32}, kNone}));
}

}  // namespace
}  // namespace rapt::emulator
