// The page allocator against a naive model that remembers what every slot of the pool holds.
#include "rapt/page_allocator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/prefix_index.hpp"
#include "rapt/error.hpp"
#include "support/error_of.hpp"

namespace rapt {
namespace {

using test::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<int32_t>;
using SequenceId = PageAllocator::SequenceId;

Tokens copy_of(std::span<const int32_t> pages) {
  return {pages.begin(), pages.end()};
}

// Begins a request on `tokens` and writes all of them.
SequenceId write(PageAllocator& allocator, const Tokens& tokens) {
  const SequenceId id = allocator.begin(tokens);
  const int64_t cached = allocator.num_cached_tokens(id);
  allocator.reserve(id, std::ssize(tokens) - cached);
  allocator.append(id, std::span(tokens).subspan(cached));
  return id;
}

// A stand-in for the pool's memory: what attention would find in a slot is the token there and all
// tokens before it, for a key depends on its whole prefix.
class Machine {
 public:
  Machine(int64_t num_pages, int32_t page_size, bool null_page)
      : allocator(num_pages, page_size, null_page),
        first_page_(null_page ? 1 : 0),
        memory_(num_pages, std::vector<Tokens>(page_size)) {}

  void begin(const Tokens& tokens) {
    const SequenceId id = allocator.begin(tokens);
    RC_ASSERT(!written_.contains(id));
    const int64_t cached = allocator.num_cached_tokens(id);
    RC_ASSERT(cached % allocator.page_size() == 0);
    RC_ASSERT(cached == 0 || cached < std::ssize(tokens));
    written_[id] = Tokens(tokens.begin(), tokens.begin() + cached);
    check();
  }

  // The first pages_of(id).size() pages stay as they are, whatever happens.
  void reserve(SequenceId id, int64_t num_tokens) {
    const Tokens before = copy_of(allocator.pages(id));
    const int64_t page_size = allocator.page_size();
    const int64_t needed = (std::ssize(written_[id]) + num_tokens + page_size - 1) / page_size;
    const int64_t lacking = std::max<int64_t>(needed - std::ssize(before), 0);
    const bool fits = lacking <= allocator.num_free_pages();
    RC_ASSERT(allocator.can_reserve(id, num_tokens) == fits);
    const auto counts = counts_now();
    if (fits) {
      allocator.reserve(id, num_tokens);
      const Tokens after = copy_of(allocator.pages(id));
      RC_ASSERT(std::ssize(after) == std::ssize(before) + lacking);
      RC_ASSERT(std::equal(before.begin(), before.end(), after.begin()));
    } else {
      RC_ASSERT_THROWS_AS(allocator.reserve(id, num_tokens), Error);
      RC_ASSERT(copy_of(allocator.pages(id)) == before);
      RC_ASSERT(counts_now() == counts);
    }
    check();
  }

  void append(SequenceId id, Tokens tokens) {
    const Tokens pages = copy_of(allocator.pages(id));
    Tokens& written = written_[id];
    const int64_t page_size = allocator.page_size();
    const int64_t room = std::ssize(pages) * page_size - std::ssize(written);
    if (std::ssize(tokens) > room) {
      RC_ASSERT_THROWS_AS(allocator.append(id, tokens), Error);
      tokens.resize(room);
    }
    for (int32_t token : tokens) {
      const int64_t position = std::ssize(written);
      written.push_back(token);
      memory_[pages[position / page_size]][position % page_size] = written;
    }
    allocator.append(id, tokens);
    check();
  }

  void fork(SequenceId id) {
    const bool partial = std::ssize(written_[id]) % allocator.page_size() != 0;
    const auto counts = counts_now();
    if (partial && allocator.num_free_pages() == 0) {
      RC_ASSERT_THROWS_AS(allocator.fork(id), Error);
      RC_ASSERT(counts_now() == counts);
      return;
    }
    const PageAllocator::Fork fork = allocator.fork(id);
    RC_ASSERT(!written_.contains(fork.id));
    RC_ASSERT((fork.copy_from >= 0) == partial);
    RC_ASSERT((fork.copy_to >= 0) == partial);
    if (partial) memory_[fork.copy_to] = memory_[fork.copy_from];
    written_[fork.id] = Tokens(written_[id]);
    check();
  }

  void end(SequenceId id) {
    allocator.end(id);
    written_.erase(id);
    check();
  }

  SequenceId pick(int64_t n) const {
    auto at = written_.begin();
    std::advance(at, n % std::ssize(written_));
    return at->first;
  }
  bool idle() const { return written_.empty(); }

  PageAllocator allocator;

 private:
  std::vector<int64_t> counts_now() const {
    return {allocator.num_free_pages(), allocator.num_used_pages(), allocator.num_shared_pages()};
  }

  void check() const {
    const int64_t page_size = allocator.page_size();
    std::map<int32_t, std::vector<std::pair<SequenceId, int64_t>>> holders;
    for (const auto& [id, tokens] : written_) {
      const Tokens pages = copy_of(allocator.pages(id));
      RC_ASSERT(allocator.num_tokens(id) == std::ssize(tokens));
      RC_ASSERT(std::set(pages.begin(), pages.end()).size() == pages.size());
      for (int64_t i = 0; i < std::ssize(pages); i++) holders[pages[i]].push_back({id, i});
      for (int64_t i = 0; i < std::ssize(tokens); i++)  // it finds its own tokens in the pool
        RC_ASSERT(memory_[pages[i / page_size]][i % page_size] ==
                  Tokens(tokens.begin(), tokens.begin() + i + 1));
    }
    int64_t shared = 0;
    for (const auto& [page, list] : holders) {
      RC_ASSERT(page >= first_page_ && page < allocator.num_pages());
      shared += list.size() > 1;
      for (const auto& [id, index] : list) {  // shared pages are full, and at the same place
        RC_ASSERT(list.size() == 1 || (index + 1) * page_size <= std::ssize(written_.at(id)));
        RC_ASSERT(index == list[0].second);
      }
    }
    RC_ASSERT(allocator.num_used_pages() == std::ssize(holders));
    RC_ASSERT(allocator.num_shared_pages() == shared);
    RC_ASSERT(allocator.num_free_pages() + std::ssize(holders) + first_page_ ==
              allocator.num_pages());
  }

  int64_t first_page_;
  std::vector<std::vector<Tokens>> memory_;  // [num_pages][page_size]
  std::map<SequenceId, Tokens> written_;
};

// Two token values and short requests, so that prefixes meet often; a pool of few pages, so that
// it runs out and evicts often.
RC_GTEST_PROP(PageAllocator, keeps_every_request_its_own_prefix, ()) {
  const auto num_pages = *rc::gen::inRange<int64_t>(1, 14);
  const auto page_size = *rc::gen::inRange<int32_t>(1, 4);
  Machine machine(num_pages, page_size, *rc::gen::arbitrary<bool>());
  const auto tokens = rc::gen::container<Tokens>(rc::gen::inRange<int32_t>(0, 2));
  const auto steps = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 10), rc::gen::inRange(0, 1000)));
  for (const auto& [what, n] : steps) {
    if (machine.idle() || what < 2)
      machine.begin(*tokens);
    else if (what < 4)
      machine.reserve(machine.pick(n), n % 8);
    else if (what < 7)
      machine.append(machine.pick(n), *tokens);
    else if (what < 8)
      machine.fork(machine.pick(n));
    else
      machine.end(machine.pick(n));
  }
  while (!machine.idle()) machine.end(machine.pick(0));
  RC_ASSERT(machine.allocator.num_used_pages() == 0);
}

// In a pool that never evicts, having a page for every token, begin() finds exactly the longest
// prefix of whole pages that any request ever wrote, less the page with the last token.
RC_GTEST_PROP(PageAllocator, finds_the_longest_prefix_ever_written, ()) {
  const auto page_size = *rc::gen::inRange<int32_t>(1, 4);
  const auto requests = *rc::gen::container<std::vector<Tokens>>(
      rc::gen::container<Tokens>(rc::gen::inRange<int32_t>(0, 2)));
  int64_t num_tokens = 1;
  for (const Tokens& tokens : requests) num_tokens += std::ssize(tokens);
  PageAllocator allocator(num_tokens, page_size);
  std::set<Tokens> full_prefixes;
  for (const Tokens& tokens : requests) {
    int64_t expected = 0;
    while (expected + page_size < std::ssize(tokens) &&
           full_prefixes.contains(Tokens(tokens.begin(), tokens.begin() + expected + page_size)))
      expected += page_size;
    const SequenceId id = write(allocator, tokens);
    RC_ASSERT(allocator.num_cached_tokens(id) == expected);
    for (int64_t n = page_size; n <= std::ssize(tokens); n += page_size)
      full_prefixes.insert(Tokens(tokens.begin(), tokens.begin() + n));
    if (*rc::gen::arbitrary<bool>()) allocator.end(id);
  }
}

TEST(PageAllocator, shares_full_pages_but_never_the_last_token) {
  PageAllocator allocator(8, 4);
  const SequenceId a = write(allocator, {1, 2, 3, 4, 5, 6, 7, 8});
  const SequenceId b = allocator.begin(Tokens{1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(allocator.num_cached_tokens(b), 4) << "the second page holds the last token";
  const SequenceId c = allocator.begin(Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(allocator.num_cached_tokens(c), 8);
  EXPECT_EQ(copy_of(allocator.pages(c)), copy_of(allocator.pages(a)));
  EXPECT_EQ(allocator.num_shared_pages(), 2);
  EXPECT_EQ(allocator.num_used_pages(), 2);
}

TEST(PageAllocator, a_page_is_shared_only_after_the_same_prefix) {
  PageAllocator allocator(8, 2);
  write(allocator, {1, 1, 5, 5});
  write(allocator, {2, 2, 6, 6});
  const SequenceId id = allocator.begin(Tokens{2, 2, 5, 5, 0});
  EXPECT_EQ(allocator.num_cached_tokens(id), 2);
}

// Two different first pages with the same 64-bit hash: the states after the first token agree in
// their upper half, and the second token makes up for the lower half.
TEST(PageAllocator, equal_hashes_of_different_tokens_share_nothing) {
  std::unordered_map<uint32_t, int32_t> by_upper_half;
  Tokens first, second;
  for (int32_t token = 0; first.empty() && token < 1 << 22; token++) {
    const uint64_t state = hash_page(kEmptyPrefix, Tokens{token});
    const auto [at, is_new] = by_upper_half.emplace(static_cast<uint32_t>(state >> 32), token);
    if (is_new) continue;
    const uint64_t other = hash_page(kEmptyPrefix, Tokens{at->second});
    first = {at->second, 17};
    second = {token, static_cast<int32_t>(17u ^ static_cast<uint32_t>(state ^ other))};
  }
  ASSERT_FALSE(first.empty());
  ASSERT_EQ(hash_page(kEmptyPrefix, first), hash_page(kEmptyPrefix, second));
  PageAllocator allocator(8, 2);
  write(allocator, first);
  const SequenceId b = write(allocator, second);
  EXPECT_EQ(allocator.num_cached_tokens(b), 0);
  first.push_back(0);
  second.push_back(0);
  EXPECT_EQ(allocator.num_cached_tokens(allocator.begin(first)), 2);
  EXPECT_EQ(copy_of(allocator.pages(allocator.begin(second))), copy_of(allocator.pages(b)));
}

TEST(PageAllocator, evicts_the_least_recently_used_page_from_the_end_of_its_prefix) {
  PageAllocator allocator(4, 2);
  const SequenceId a = write(allocator, {1, 1, 2, 2});
  const SequenceId b = write(allocator, {3, 3, 4, 4});
  allocator.end(a);
  allocator.end(b);
  EXPECT_EQ(allocator.num_free_pages(), 4);
  const SequenceId c = allocator.begin(Tokens{9});
  allocator.reserve(c, 1);
  const Tokens asked_a = {1, 1, 2, 2, 0}, asked_b = {3, 3, 4, 4, 0};
  const SequenceId a_again = allocator.begin(asked_a), b_again = allocator.begin(asked_b);
  EXPECT_EQ(allocator.num_cached_tokens(a_again), 2) << "only its last page is gone";
  EXPECT_EQ(allocator.num_cached_tokens(b_again), 4);
}

TEST(PageAllocator, used_again_is_used_recently) {
  PageAllocator allocator(4, 2);
  const SequenceId a = write(allocator, {1, 1, 2, 2});
  const SequenceId b = write(allocator, {3, 3, 4, 4});
  allocator.end(a);
  allocator.end(b);
  allocator.end(allocator.begin(Tokens{1, 1, 2, 2, 0}));  // a's pages are now the newest
  const SequenceId c = allocator.begin(Tokens{9});
  allocator.reserve(c, 4);
  EXPECT_EQ(allocator.num_cached_tokens(allocator.begin(Tokens{3, 3, 4, 4, 0})), 0);
  EXPECT_EQ(allocator.num_cached_tokens(allocator.begin(Tokens{1, 1, 2, 2, 0})), 4);
}

TEST(PageAllocator, a_page_after_an_evicted_one_is_not_found_under_its_successor) {
  PageAllocator allocator(3, 1);
  const SequenceId a = allocator.begin({}), b = allocator.begin({});
  allocator.reserve(a, 1);
  allocator.reserve(b, 2);
  allocator.append(a, Tokens{1});  // page 0 stands for [1]
  allocator.append(b, Tokens{1, 2});
  EXPECT_THAT(allocator.pages(b), ElementsAre(1, 2)) << "page 2 stands for [1, 2]";
  allocator.end(a);
  const SequenceId c = allocator.begin({});
  allocator.reserve(c, 1);
  allocator.append(c, Tokens{7});
  EXPECT_THAT(allocator.pages(c), ElementsAre(0)) << "which now stands for [7]";
  const SequenceId d = allocator.begin(Tokens{7, 2, 0});
  EXPECT_EQ(allocator.num_cached_tokens(d), 1) << "page 2 follows 1, not 7";
}

TEST(PageAllocator, null_page_is_never_handed_out) {
  PageAllocator allocator(3, 1, true);
  EXPECT_EQ(allocator.num_free_pages(), 2);
  const SequenceId id = allocator.begin({});
  allocator.reserve(id, 2);
  EXPECT_THAT(allocator.pages(id), ElementsAre(1, 2));
  EXPECT_FALSE(allocator.can_reserve(id, 3));
}

TEST(PageAllocator, running_out_names_the_pages_and_changes_nothing) {
  PageAllocator allocator(3, 16);
  const SequenceId a = allocator.begin({}), b = allocator.begin({});
  allocator.reserve(a, 17);
  EXPECT_THAT(error_of(ErrorCode::kOutOfMemory, [&] { allocator.reserve(b, 32); }),
              AllOf(HasSubstr("1 of its 3 pages free"), HasSubstr("2 are needed")));
  EXPECT_TRUE(allocator.pages(b).empty());
  EXPECT_EQ(allocator.num_free_pages(), 1);
  allocator.reserve(b, 16);
  EXPECT_FALSE(allocator.can_reserve(b, INT64_MAX)) << "and the sum does not wrap";
}

TEST(PageAllocator, room_is_counted_from_the_tokens_written) {
  PageAllocator allocator(4, 4);
  const SequenceId id = allocator.begin({});
  allocator.reserve(id, 3);
  allocator.reserve(id, 4);  // a rejected draft: nothing was appended, so this is the same page
  EXPECT_EQ(allocator.pages(id).size(), 1u);
  allocator.append(id, Tokens{1, 2, 3});
  allocator.reserve(id, 4);
  EXPECT_EQ(allocator.pages(id).size(), 2u);
}

TEST(PageAllocator, fork_copies_the_partial_page_only) {
  PageAllocator allocator(6, 2);
  const SequenceId a = write(allocator, {1, 2, 3});
  allocator.reserve(a, 4);  // reserved room is not shared either
  const PageAllocator::Fork fork = allocator.fork(a);
  EXPECT_EQ(fork.copy_from, allocator.pages(a)[1]);
  EXPECT_EQ(fork.copy_to, allocator.pages(fork.id)[1]);
  EXPECT_EQ(allocator.pages(fork.id).size(), 2u);
  EXPECT_EQ(allocator.pages(fork.id)[0], allocator.pages(a)[0]);
  allocator.append(a, Tokens{4});
  allocator.append(fork.id, Tokens{5});
  const SequenceId b = allocator.begin(Tokens{1, 2, 3, 5, 0});
  EXPECT_EQ(copy_of(allocator.pages(b)), copy_of(allocator.pages(fork.id)));
  allocator.end(a);
  const PageAllocator::Fork whole = allocator.fork(fork.id);
  EXPECT_EQ(whole.copy_from, -1);
  EXPECT_EQ(whole.copy_to, -1);
}

TEST(PageAllocator, names_what_is_wrong) {
  PageAllocator allocator(2, 4);
  const SequenceId id = allocator.begin({});
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { allocator.append(id, Tokens{1}); }),
              AllOf(HasSubstr("1 tokens"), HasSubstr("room for 0"), HasSubstr("reserve()")));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { allocator.reserve(id, -1); }),
              HasSubstr("num_tokens is -1"));
  allocator.end(id);
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { allocator.end(id); }),
              HasSubstr("sequence 0 is not active"));
  EXPECT_NE(allocator.begin({}), id) << "ids are never reused";
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [] { PageAllocator(-1, 4); }),
              HasSubstr("num_pages is -1"));
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();  // 2^64 bytes of tokens
  EXPECT_THAT(error_of(ErrorCode::kOutOfMemory, [] { PageAllocator(kMost, kMost); }),
              HasSubstr("no memory for the tokens"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [] { PageAllocator(1, 0); }),
              HasSubstr("page_size is 0"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [] { PageAllocator(0, 4, true); }),
              HasSubstr("null page"));
}

}  // namespace
}  // namespace rapt
