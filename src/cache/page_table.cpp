// Page arithmetic: manager pages to kernel pages, token positions to slots.
#include <cstddef>
#include <limits>

#include "core/check.hpp"
#include "rapt/kv_cache.hpp"

namespace rapt {

void expand_pages(std::span<const int32_t> manager_pages, int32_t ratio, std::span<int32_t> out) {
  check(ratio >= 1, "ratio is ", ratio, ": a manager page holds at least 1 kernel page");
  const int64_t needed =
      checked_mul(static_cast<int64_t>(manager_pages.size()), ratio, "expand_pages");
  check(std::ssize(out) == needed, "out has ", out.size(), " entries: ", manager_pages.size(),
        " manager pages of ", ratio, " kernel pages take ", needed);
  // The last kernel page of a manager page must still be an int32.
  const int32_t largest = (std::numeric_limits<int32_t>::max() - (ratio - 1)) / ratio;
  for (size_t i = 0; i < manager_pages.size(); i++)
    check(manager_pages[i] <= largest, "manager_pages[", i, "] is ", manager_pages[i],
          ": its kernel pages at ratio ", ratio, " are past the largest int32 page id");
  for (size_t i = 0; i < manager_pages.size(); i++)
    for (int32_t part = 0; part < ratio; part++)
      out[i * ratio + part] =
          manager_pages[i] < 0 ? manager_pages[i] : manager_pages[i] * ratio + part;
}

int64_t slot_of(std::span<const int32_t> pages, int32_t page_size, int64_t pos) {
  check(page_size >= 1, "page_size is ", page_size, ": must be at least 1");
  check(pos >= 0 && pos / page_size < std::ssize(pages), "pos is ", pos, ": the request's ",
        pages.size(), " pages of ", page_size, " hold positions 0 to ",
        std::ssize(pages) * page_size - 1);
  const int64_t entry = pos / page_size;
  check(pages[entry] >= 0, "pages[", entry, "] is ", pages[entry], ": position ", pos,
        " has no page, and a negative slot would not be written");
  return int64_t{pages[entry]} * page_size + pos % page_size;
}

}  // namespace rapt
