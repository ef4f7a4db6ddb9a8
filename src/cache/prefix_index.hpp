// Finds the page that holds given tokens after a given prefix.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rapt {

// Where a page stands in the tree of prefixes. Ids are handed out once and never again, so that a
// page whose predecessor was evicted can't be found under whatever takes that predecessor's place.
using PrefixId = uint64_t;
constexpr PrefixId kEmptyPrefix = 0;

// The hash of a page's bucket: chained, for it starts from the prefix before the page.
inline uint64_t hash_page(PrefixId before, std::span<const int32_t> tokens) {
  uint64_t state = before;
  for (int32_t token : tokens) {  // the finaliser of SplitMix64, a bijection
    state = (state ^ static_cast<uint32_t>(token)) + 0x9e3779b97f4a7c15u;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    state ^= state >> 31;
  }
  return state;
}

// A hash table chained through the pages themselves: nothing is allocated after construction. A
// match is one of (prefix, tokens), never of hashes alone, so by induction it is one of all tokens.
class PrefixIndex {
 public:
  PrefixIndex(int64_t num_pages, int32_t page_size);

  // The tokens of a page, [page_size]. Not to be changed while the page is in the index.
  std::span<int32_t> tokens(int32_t page);
  std::span<const int32_t> tokens(int32_t page) const;

  // The page that holds `tokens` after `before`, or -1.
  int32_t find(PrefixId before, std::span<const int32_t> tokens) const;
  // Puts the page's tokens after `before` into the index. If another page already stands for them,
  // that one stays and this one is left out. Returns the prefix that ends with these tokens.
  PrefixId add(int32_t page, PrefixId before);
  void remove(int32_t page);

  bool contains(int32_t page) const { return entries_[page].id != kEmptyPrefix; }
  PrefixId id(int32_t page) const { return entries_[page].id; }

 private:
  struct Entry {
    PrefixId id = kEmptyPrefix;  // kEmptyPrefix: not in the index
    PrefixId before = kEmptyPrefix;
    int32_t next = -1;  // in its bucket
  };

  int32_t& bucket(PrefixId before, std::span<const int32_t> tokens);

  int32_t page_size_;
  PrefixId next_id_ = kEmptyPrefix + 1;
  std::vector<int32_t> tokens_;  // [num_pages, page_size]
  std::vector<Entry> entries_;   // [num_pages]
  std::vector<int32_t> heads_;   // first page of each bucket, or -1; a power of two of them
};

}  // namespace rapt
