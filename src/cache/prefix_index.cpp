#include "cache/prefix_index.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "core/check.hpp"

namespace rapt {

PrefixIndex::PrefixIndex(int64_t num_pages, int32_t page_size)
    : page_size_(page_size),
      tokens_(static_cast<size_t>(checked_mul(num_pages, page_size, "page_size * num_pages"))),
      entries_(static_cast<size_t>(num_pages)),
      heads_(std::bit_ceil(static_cast<size_t>(num_pages)), -1) {}

std::span<int32_t> PrefixIndex::tokens(int32_t page) {
  return std::span(tokens_).subspan(static_cast<size_t>(page) * page_size_, page_size_);
}

std::span<const int32_t> PrefixIndex::tokens(int32_t page) const {
  return std::span(tokens_).subspan(static_cast<size_t>(page) * page_size_, page_size_);
}

int32_t& PrefixIndex::bucket(PrefixId before, std::span<const int32_t> tokens) {
  return heads_[hash_page(before, tokens) & (heads_.size() - 1)];
}

int32_t PrefixIndex::find(PrefixId before, std::span<const int32_t> tokens) const {
  int32_t page = heads_[hash_page(before, tokens) & (heads_.size() - 1)];
  while (page != -1 &&
         !(entries_[page].before == before && std::ranges::equal(this->tokens(page), tokens)))
    page = entries_[page].next;
  return page;
}

PrefixId PrefixIndex::add(int32_t page, PrefixId before) {
  const std::span<const int32_t> added = tokens(page);
  if (const int32_t present = find(before, added); present != -1) return id(present);
  int32_t& head = bucket(before, added);
  entries_[page] = {.id = next_id_++, .before = before, .next = head};
  head = page;
  return id(page);
}

void PrefixIndex::remove(int32_t page) {
  int32_t* link = &bucket(entries_[page].before, tokens(page));
  while (*link != page) link = &entries_[*link].next;
  *link = entries_[page].next;
  entries_[page] = {};
}

}  // namespace rapt
