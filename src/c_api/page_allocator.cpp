#include "rapt/page_allocator.hpp"

#include <span>

#include "c_api/params.hpp"

struct rapt_page_allocator {
  rapt::PageAllocator allocator;
};

namespace rapt::c_api {
namespace {

std::span<const int32_t> tokens_of(const int32_t* tokens, size_t num_tokens) {
  if (num_tokens > 0) require(tokens, "tokens");
  return {tokens, num_tokens};
}

}  // namespace
}  // namespace rapt::c_api

using namespace rapt::c_api;

rapt_status rapt_page_allocator_create(int64_t num_pages, int32_t page_size,
                                       int32_t reserve_null_page, rapt_page_allocator** allocator) {
  return guarded([&] {
    require(allocator, "allocator");
    const bool reserve = to_flag(reserve_null_page, "reserve_null_page");
    *allocator = new rapt_page_allocator{rapt::PageAllocator(num_pages, page_size, reserve)};
  });
}

void rapt_page_allocator_destroy(rapt_page_allocator* allocator) {
  delete allocator;
}

rapt_status rapt_page_allocator_begin(rapt_page_allocator* allocator, const int32_t* tokens,
                                      size_t num_tokens, int64_t* sequence) {
  return guarded([&] {
    require(allocator, "allocator");
    require(sequence, "sequence");
    *sequence = allocator->allocator.begin(tokens_of(tokens, num_tokens));
  });
}

rapt_status rapt_page_allocator_reserve(rapt_page_allocator* allocator, int64_t sequence,
                                        int64_t num_tokens) {
  return guarded([&] { require(allocator, "allocator")->allocator.reserve(sequence, num_tokens); });
}

rapt_status rapt_page_allocator_can_reserve(const rapt_page_allocator* allocator, int64_t sequence,
                                            int64_t num_tokens, int32_t* can) {
  return guarded([&] {
    require(allocator, "allocator");
    require(can, "can");
    *can = allocator->allocator.can_reserve(sequence, num_tokens) ? 1 : 0;
  });
}

rapt_status rapt_page_allocator_append(rapt_page_allocator* allocator, int64_t sequence,
                                       const int32_t* tokens, size_t num_tokens) {
  return guarded([&] {
    require(allocator, "allocator")->allocator.append(sequence, tokens_of(tokens, num_tokens));
  });
}

rapt_status rapt_page_allocator_fork(rapt_page_allocator* allocator, int64_t sequence,
                                     int64_t* fork, int32_t* copy_from, int32_t* copy_to) {
  return guarded([&] {
    require(allocator, "allocator");
    require(fork, "fork");
    require(copy_from, "copy_from");
    require(copy_to, "copy_to");
    const rapt::PageAllocator::Fork made = allocator->allocator.fork(sequence);
    *fork = made.id;
    *copy_from = made.copy_from;
    *copy_to = made.copy_to;
  });
}

rapt_status rapt_page_allocator_end(rapt_page_allocator* allocator, int64_t sequence) {
  return guarded([&] { require(allocator, "allocator")->allocator.end(sequence); });
}

rapt_status rapt_page_allocator_pages(const rapt_page_allocator* allocator, int64_t sequence,
                                      const int32_t** pages, size_t* num_pages) {
  return guarded([&] {
    require(allocator, "allocator");
    require(pages, "pages");
    require(num_pages, "num_pages");
    const std::span<const int32_t> held = allocator->allocator.pages(sequence);
    *pages = held.data();
    *num_pages = held.size();
  });
}

rapt_status rapt_page_allocator_tokens(const rapt_page_allocator* allocator, int64_t sequence,
                                       int64_t* num_tokens, int64_t* num_cached_tokens) {
  return guarded([&] {
    const rapt::PageAllocator& given = require(allocator, "allocator")->allocator;
    const int64_t recorded = given.num_tokens(sequence);
    const int64_t cached = given.num_cached_tokens(sequence);
    if (num_tokens) *num_tokens = recorded;
    if (num_cached_tokens) *num_cached_tokens = cached;
  });
}

rapt_status rapt_page_allocator_get_stats(const rapt_page_allocator* allocator,
                                          rapt_page_allocator_stats* stats) {
  return guarded([&] {
    const rapt::PageAllocator& given = require(allocator, "allocator")->allocator;
    const size_t size = checked_struct_size(stats, "stats");
    rapt_page_allocator_stats result{};
    result.num_pages = given.num_pages();
    result.num_free_pages = given.num_free_pages();
    result.num_used_pages = given.num_used_pages();
    result.num_shared_pages = given.num_shared_pages();
    write_params(stats, size, result);
  });
}
