// Pages of a KV cache handed out to requests, with full pages shared between requests that have the
// same prefix.
//
// Host-only bookkeeping: it never touches the pool's memory. A page is full when all its tokens are
// known; full pages form a hash chain (a page's key covers its tokens and all before them), so that
// a prefix is found page by page. Single-threaded: one allocator belongs to one scheduler.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rapt/export.hpp"

namespace rapt {

class RAPT_API PageAllocator {
 public:
  // Pages 0 .. num_pages - 1; with reserve_null_page, page 0 is never handed out (padding rows may
  // point at it).
  PageAllocator(int64_t num_pages, int32_t page_size, bool reserve_null_page = false);
  ~PageAllocator();
  PageAllocator(PageAllocator&&) noexcept;
  PageAllocator& operator=(PageAllocator&&) noexcept;

  // One request's pages. Opaque; ids are never reused while the allocator lives.
  using SequenceId = int64_t;

  // Starts a request on the pages of the longest cached prefix of `tokens`, never all of them: at
  // least the last token is left to compute. num_cached_tokens(id) says how many tokens are already
  // in the cache.
  SequenceId begin(std::span<const int32_t> tokens);
  // Room for `num_tokens` tokens after those appended; room reserved before counts. Tokens of a
  // draft that is rejected are written to it and just never appended. All or nothing:
  // Error(kOutOfMemory) with the pages needed and free, and nothing changed, if the pool cannot
  // give them. Cached pages nobody holds are evicted, least recently used first.
  void reserve(SequenceId id, int64_t num_tokens);
  // True if reserve() would succeed now.
  bool can_reserve(SequenceId id, int64_t num_tokens) const;
  // Records the next tokens of the request as written, in reserved room; pages that become full can
  // be shared from now on. A page that repeats one already known is kept, but not found by others.
  void append(SequenceId id, std::span<const int32_t> tokens);
  // A second request on the same tokens; full pages are shared. A partly filled last page is not:
  // the caller must copy its contents as copy_from -> copy_to says (page ids; both -1 when there is
  // nothing to copy).
  struct Fork {
    SequenceId id = -1;
    int32_t copy_from = -1;
    int32_t copy_to = -1;
  };
  Fork fork(SequenceId id);
  // Gives the request's pages back; full ones stay findable until they are evicted.
  void end(SequenceId id);

  // The request's pages in token order, one for each page_size tokens reserved. Valid until the
  // next call that changes this request.
  std::span<const int32_t> pages(SequenceId id) const;
  int64_t num_tokens(SequenceId id) const;
  int64_t num_cached_tokens(SequenceId id) const;  // at begin() or fork()

  int32_t page_size() const;
  int64_t num_pages() const;
  int64_t num_free_pages() const;    // free now or by eviction
  int64_t num_used_pages() const;    // held by at least one request
  int64_t num_shared_pages() const;  // held by two or more

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rapt
