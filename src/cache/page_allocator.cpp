#include "rapt/page_allocator.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <unordered_map>
#include <utility>

#include "cache/prefix_index.hpp"
#include "core/check.hpp"

namespace rapt {
// A page is in exactly one of these states: held (holders > 0), cached (in the index, nobody holds
// it: in the list from oldest_ to newest_), or blank (on the free_ stack). Held pages are in the
// index too once they are full, unless another page with the same prefix was there first.
struct PageAllocator::Impl {
  struct Page {
    int32_t holders = 0;  // requests that hold it
    // Neighbours in the list of cached pages nobody holds, -1 at its ends.
    int32_t older = -1, newer = -1;
  };

  struct Sequence {
    std::vector<int32_t> pages;
    int64_t num_tokens = 0;          // written; the pages may have room for more
    int64_t num_cached_tokens = 0;   // at its start
    PrefixId prefix = kEmptyPrefix;  // of its full pages
  };

  int32_t page_size;
  PrefixIndex index;
  std::vector<Page> pages;
  std::vector<int32_t> free;  // a stack; lowest id on top at first
  int32_t oldest = -1, newest = -1;
  int64_t num_cached = 0, num_used = 0, num_shared = 0;
  std::unordered_map<SequenceId, Sequence> sequences;
  SequenceId next_id = 0;

  Impl(int64_t num_pages, int32_t size, bool reserve_null_page)
      : page_size(size), index(num_pages, size), pages(num_pages) {
    free.reserve(num_pages);
    for (int64_t page = num_pages - 1; page >= (reserve_null_page ? 1 : 0); page--)
      free.push_back(static_cast<int32_t>(page));
  }

  Sequence& sequence(SequenceId id) {
    const auto found = sequences.find(id);
    check(found != sequences.end(), "sequence ", id,
          " is not active: begin() or fork() never gave it, or it has ended");
    return found->second;
  }

  int64_t num_free() const { return std::ssize(free) + num_cached; }

  // Pages that `sequence` lacks for that many tokens more; more than any pool has if the sum does
  // not fit.
  int64_t pages_lacking(const Sequence& sequence, int64_t num_tokens) const {
    check(num_tokens >= 0, "num_tokens is ", num_tokens, ": must not be negative");
    if (num_tokens > std::numeric_limits<int64_t>::max() - sequence.num_tokens - page_size)
      return std::numeric_limits<int64_t>::max();
    const int64_t needed = ceil_div(sequence.num_tokens + num_tokens, page_size);
    return std::max<int64_t>(needed - std::ssize(sequence.pages), 0);
  }

  void check_free(int64_t needed) const {
    if (needed > num_free())
      fail(ErrorCode::kOutOfMemory, "the page pool has ", num_free(), " of its ", pages.size(),
           " pages free, but ", needed, " are needed: end or preempt a request");
  }

  // Takes a page out of the list of cached ones.
  void unlink(int32_t id) {
    Page& page = pages[id];
    (page.older == -1 ? oldest : pages[page.older].newer) = page.newer;
    (page.newer == -1 ? newest : pages[page.newer].older) = page.older;
    page.older = page.newer = -1;
    num_cached--;
  }

  void link_newest(int32_t id) {
    pages[id].older = newest;
    (newest == -1 ? oldest : pages[newest].newer) = id;
    newest = id;
    num_cached++;
  }

  // A blank page for one holder; there must be one free.
  int32_t take() {
    int32_t id;
    if (!free.empty()) {
      id = free.back();
      free.pop_back();
    } else {
      id = oldest;
      unlink(id);
      index.remove(id);
    }
    pages[id].holders = 1;
    num_used++;
    return id;
  }

  // One holder more of a held or cached page.
  void hold(int32_t id) {
    Page& page = pages[id];
    if (page.holders == 0) {
      unlink(id);
      num_used++;
    }
    if (++page.holders == 2) num_shared++;
  }

  void release(int32_t id) {
    Page& page = pages[id];
    if (--page.holders == 1) num_shared--;
    if (page.holders > 0) return;
    num_used--;
    if (index.contains(id))
      link_newest(id);
    else
      free.push_back(id);
  }
};

PageAllocator::PageAllocator(int64_t num_pages, int32_t page_size, bool reserve_null_page) {
  check(num_pages >= 0 && num_pages <= std::numeric_limits<int32_t>::max(), "num_pages is ",
        num_pages, ": must be in [0, 2^31 - 1], page ids are int32");
  check(page_size >= 1, "page_size is ", page_size, ": must be at least 1");
  check(num_pages > 0 || !reserve_null_page,
        "num_pages is 0: there is no page 0 to reserve as the null page");
  try {
    impl_ = std::make_unique<Impl>(num_pages, page_size, reserve_null_page);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // bad_alloc, or length_error where a vector could never be
    fail(ErrorCode::kOutOfMemory, "no memory for the tokens of ", num_pages, " pages of ",
         page_size, ": ask for fewer");
  }
}

PageAllocator::~PageAllocator() = default;
PageAllocator::PageAllocator(PageAllocator&&) noexcept = default;
PageAllocator& PageAllocator::operator=(PageAllocator&&) noexcept = default;

PageAllocator::SequenceId PageAllocator::begin(std::span<const int32_t> tokens) {
  Impl& impl = *impl_;
  const auto page_size = static_cast<size_t>(impl.page_size);
  Impl::Sequence sequence;
  // The last token is always left to compute, so only what comes before it is looked up.
  for (size_t first = 0; first + page_size < tokens.size(); first += page_size) {
    const int32_t page = impl.index.find(sequence.prefix, tokens.subspan(first, page_size));
    if (page == -1) break;
    sequence.prefix = impl.index.id(page);
    sequence.pages.push_back(page);
  }
  sequence.num_tokens = std::ssize(sequence.pages) * impl.page_size;
  sequence.num_cached_tokens = sequence.num_tokens;
  const Impl::Sequence& begun =
      impl.sequences.emplace(impl.next_id, std::move(sequence)).first->second;
  for (int32_t page : begun.pages) impl.hold(page);
  return impl.next_id++;
}

void PageAllocator::reserve(SequenceId id, int64_t num_tokens) {
  Impl::Sequence& sequence = impl_->sequence(id);
  const int64_t lacking = impl_->pages_lacking(sequence, num_tokens);
  impl_->check_free(lacking);
  sequence.pages.reserve(sequence.pages.size() + lacking);
  for (int64_t i = 0; i < lacking; i++) sequence.pages.push_back(impl_->take());
}

bool PageAllocator::can_reserve(SequenceId id, int64_t num_tokens) const {
  return impl_->pages_lacking(impl_->sequence(id), num_tokens) <= impl_->num_free();
}

void PageAllocator::append(SequenceId id, std::span<const int32_t> tokens) {
  Impl::Sequence& sequence = impl_->sequence(id);
  const int64_t page_size = impl_->page_size;
  const int64_t room = std::ssize(sequence.pages) * page_size - sequence.num_tokens;
  // Unsigned: the C interface hands on whatever length it is given.
  check(tokens.size() <= static_cast<size_t>(room), "append: ", tokens.size(),
        " tokens, but sequence ", id, " has reserved room for ", room, " more: reserve() first");
  for (int32_t token : tokens) {
    const int32_t page = sequence.pages[sequence.num_tokens / page_size];
    impl_->index.tokens(page)[sequence.num_tokens % page_size] = token;
    if (++sequence.num_tokens % page_size == 0)
      sequence.prefix = impl_->index.add(page, sequence.prefix);
  }
}

PageAllocator::Fork PageAllocator::fork(SequenceId id) {
  const Impl::Sequence& original = impl_->sequence(id);
  const int64_t num_full = original.num_tokens / impl_->page_size;
  const bool has_partial_page = original.num_tokens % impl_->page_size != 0;
  impl_->check_free(has_partial_page ? 1 : 0);

  Impl::Sequence copy{.pages = {original.pages.begin(), original.pages.begin() + num_full},
                      .num_tokens = original.num_tokens,
                      .num_cached_tokens = original.num_tokens,
                      .prefix = original.prefix};
  copy.pages.reserve(num_full + 1);
  Fork fork{.id = impl_->next_id};
  if (has_partial_page) fork.copy_from = original.pages[num_full];
  // May throw, and may move the table: `original` is not used from here on.
  Impl::Sequence& forked = impl_->sequences.emplace(fork.id, std::move(copy)).first->second;
  impl_->next_id++;
  for (int32_t page : forked.pages) impl_->hold(page);
  if (has_partial_page) {
    fork.copy_to = impl_->take();
    forked.pages.push_back(fork.copy_to);
    std::ranges::copy(impl_->index.tokens(fork.copy_from),
                      impl_->index.tokens(fork.copy_to).begin());
  }
  return fork;
}

void PageAllocator::end(SequenceId id) {
  const Impl::Sequence& sequence = impl_->sequence(id);
  // Last page first: it becomes the oldest, so that a prefix is evicted from its end and what is
  // left of it can still be found.
  for (size_t i = sequence.pages.size(); i-- > 0;) impl_->release(sequence.pages[i]);
  impl_->sequences.erase(id);
}

std::span<const int32_t> PageAllocator::pages(SequenceId id) const {
  return impl_->sequence(id).pages;
}
int64_t PageAllocator::num_tokens(SequenceId id) const {
  return impl_->sequence(id).num_tokens;
}
int64_t PageAllocator::num_cached_tokens(SequenceId id) const {
  return impl_->sequence(id).num_cached_tokens;
}

int32_t PageAllocator::page_size() const {
  return impl_->page_size;
}
int64_t PageAllocator::num_pages() const {
  return std::ssize(impl_->pages);
}
int64_t PageAllocator::num_free_pages() const {
  return impl_->num_free();
}
int64_t PageAllocator::num_used_pages() const {
  return impl_->num_used;
}
int64_t PageAllocator::num_shared_pages() const {
  return impl_->num_shared;
}

}  // namespace rapt
