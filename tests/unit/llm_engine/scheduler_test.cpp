#include "llm/engine/scheduler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "rapt/error.hpp"

namespace llm {
namespace {

using testing::ElementsAre;

std::vector<int32_t> tokens_from(int32_t first, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

// Runs everything with the model "next token = last token + 1", on a cache that remembers what each
// slot was given, and checks that every key a query may see is the right one.
int64_t run_checked(Scheduler& scheduler, int32_t page_size, int64_t tokens_per_step) {
  std::map<int64_t, std::pair<int32_t, int32_t>> cache;  // slot -> token, position
  Step step;
  int64_t num_steps = 0;
  while (scheduler.next(step)) {
    EXPECT_LE(step.num_tokens(), tokens_per_step);
    EXPECT_EQ(step.query_start.back(), step.num_tokens());
    for (size_t t = 0; t < step.tokens.size(); ++t)
      cache[step.slots[t]] = {step.tokens[t], step.positions[t]};
    for (size_t b = 0; b < step.kv_len.size(); ++b) {
      const auto last = static_cast<size_t>(step.query_start[b + 1] - 1);
      EXPECT_EQ(step.positions[last], step.kv_len[b] - 1);
      for (int32_t j = 0; j < step.kv_len[b]; ++j) {
        const int64_t page = step.page_table[b * static_cast<size_t>(step.table_width) +
                                             static_cast<size_t>(j / page_size)];
        const auto found = cache.find(page * page_size + j % page_size);
        if (found == cache.end()) {
          ADD_FAILURE() << "request " << b << " reads a slot nobody wrote";
          continue;
        }
        // All texts here count upwards, so a key's token follows from the query's.
        EXPECT_EQ(found->second.first, step.tokens[last] - (step.kv_len[b] - 1 - j));
        EXPECT_EQ(found->second.second, j);
      }
    }
    const std::vector<int64_t> ids(scheduler.logit_requests().begin(),
                                   scheduler.logit_requests().end());
    for (size_t i = 0; i < ids.size(); ++i)
      scheduler.push(ids[i], step.tokens[static_cast<size_t>(step.logit_rows[i])] + 1, false);
    if (++num_steps > 1000) {
      ADD_FAILURE() << "does not end";
      break;
    }
  }
  return num_steps;
}

TEST(Scheduler, chunks_long_prompts_and_fills_the_budget) {
  Scheduler scheduler({.num_pages = 100, .page_size = 4, .tokens_per_step = 8});
  scheduler.add(tokens_from(100, 11), 13);
  scheduler.add(tokens_from(200, 2), 4);
  Step step;
  ASSERT_TRUE(scheduler.next(step));
  EXPECT_THAT(step.query_start, ElementsAre(0, 8));
  EXPECT_TRUE(step.logit_rows.empty());
  ASSERT_TRUE(scheduler.next(step));  // the rest of the first prompt, and the second
  EXPECT_THAT(step.query_start, ElementsAre(0, 3, 5));
  EXPECT_THAT(step.kv_len, ElementsAre(11, 2));
  EXPECT_THAT(step.positions, ElementsAre(8, 9, 10, 0, 1));
  EXPECT_THAT(step.logit_rows, ElementsAre(2, 4));
  EXPECT_THAT(scheduler.logit_requests(), ElementsAre(0, 1));
  scheduler.push(0, 111, false);
  scheduler.push(1, 7, /*stop=*/true);
  EXPECT_TRUE(scheduler.is_done(1));
  EXPECT_THAT(scheduler.text(1), ElementsAre(200, 201));
  ASSERT_TRUE(scheduler.next(step));
  EXPECT_THAT(step.tokens, ElementsAre(111));
}

TEST(Scheduler, every_query_finds_its_keys_whatever_the_pages_and_chunks) {
  for (const int32_t page_size : {1, 3, 16}) {
    for (const int64_t budget : {1, 5, 64}) {
      Scheduler scheduler({.num_pages = 200, .page_size = page_size, .tokens_per_step = budget});
      for (int32_t i = 0; i < 6; ++i) scheduler.add(tokens_from(i * 100, 3 + 4 * i), 5 + 5 * i);
      run_checked(scheduler, page_size, budget);
      for (int64_t i = 0; i < 6; ++i) {
        EXPECT_TRUE(scheduler.is_done(i));
        EXPECT_THAT(scheduler.text(i),
                    testing::ElementsAreArray(tokens_from(static_cast<int32_t>(i) * 100,
                                                          5 + 5 * static_cast<int32_t>(i))));
      }
    }
  }
}

TEST(Scheduler, shares_the_pages_of_a_common_prefix_even_in_one_step) {
  Scheduler scheduler({.num_pages = 100, .page_size = 4, .tokens_per_step = 64});
  for (int i = 0; i < 3; ++i) scheduler.add(tokens_from(100, 10), 14);
  Step step;
  ASSERT_TRUE(scheduler.next(step));
  // Two full pages are computed once; the others compute the last two tokens of theirs.
  EXPECT_THAT(step.query_start, ElementsAre(0, 10, 12, 14));
  EXPECT_EQ(scheduler.stats().cached_tokens, 16);
  EXPECT_EQ(scheduler.stats().most_pages_shared, 2);
  EXPECT_EQ(scheduler.stats().most_pages_used, 5);
}

TEST(Scheduler, shared_prefixes_hold_the_right_keys) {
  Scheduler scheduler({.num_pages = 60, .page_size = 4, .tokens_per_step = 16});
  for (int i = 0; i < 5; ++i) scheduler.add(tokens_from(100, 17 + i), 30);
  run_checked(scheduler, 4, 16);
  EXPECT_GT(scheduler.stats().cached_tokens, 0);
}

TEST(Scheduler, preempts_the_youngest_and_still_ends_every_text) {
  Scheduler scheduler({.num_pages = 10, .page_size = 2, .tokens_per_step = 32});
  for (int32_t i = 0; i < 4; ++i) scheduler.add(tokens_from(i * 100, 4), 20);
  run_checked(scheduler, 2, 32);
  EXPECT_GT(scheduler.stats().num_preemptions, 0);
  EXPECT_LE(scheduler.stats().most_pages_used, 10);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_THAT(scheduler.text(i),
                testing::ElementsAreArray(tokens_from(static_cast<int32_t>(i) * 100, 20)));
}

TEST(Scheduler, refuses_what_can_never_run) {
  const auto refused = [](const auto& call, const char* word) {
    try {
      call();
      ADD_FAILURE() << "accepted, expected a refusal naming " << word;
    } catch (const rapt::Error& error) {
      EXPECT_EQ(error.code(), rapt::ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), testing::HasSubstr(word));
    }
  };
  Scheduler scheduler({.num_pages = 3, .page_size = 4, .tokens_per_step = 8});
  refused([&] { scheduler.add(tokens_from(0, 13), 13); }, "needs 4 pages");
  refused([&] { scheduler.add(tokens_from(0, 2), 14); }, "needs 4 pages");
  refused([&] { scheduler.add({}, 4); }, "no tokens");
  refused([] { Scheduler({.num_pages = 1, .page_size = 1, .tokens_per_step = 0}); },
          "tokens_per_step");
  scheduler.add(tokens_from(0, 2), 13);  // 12 keys in 12 slots
  run_checked(scheduler, 4, 8);
  EXPECT_TRUE(scheduler.is_done(0));
}

TEST(Scheduler, a_request_for_nothing_is_done_at_once) {
  Scheduler scheduler({.num_pages = 3, .page_size = 4, .tokens_per_step = 8});
  EXPECT_TRUE(scheduler.is_done(scheduler.add(tokens_from(0, 3), 3)));
  Step step;
  EXPECT_FALSE(scheduler.next(step));
}

}  // namespace
}  // namespace llm
