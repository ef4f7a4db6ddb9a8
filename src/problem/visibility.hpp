// Which keys a query sees, once for every backend and every test that is not an oracle of it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rapt/spec.hpp"

namespace rapt {

// Keys [begin, end); empty is begin == end.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const KeyRange&, const KeyRange&) = default;
};

// Keys that query i of query_len sees among kv_len, by position alone (a custom mask takes more
// away). `band` is AttentionSpec::visible_band().
inline KeyRange visible_keys(const Window& band, int64_t i, int64_t query_len, int64_t kv_len) {
  const int64_t p = i + kv_len - query_len;
  const int64_t begin = band.left == -1 ? 0 : std::max<int64_t>(p - band.left, 0);
  const int64_t end = band.right == -1 ? kv_len : std::min<int64_t>(p + band.right + 1, kv_len);
  return begin < end ? KeyRange{begin, end} : KeyRange{0, 0};
}

// The smallest range that holds what queries [first, last) see.
inline KeyRange visible_keys(const Window& band, int64_t first, int64_t last, int64_t query_len,
                             int64_t kv_len) {
  KeyRange all{0, 0};
  if (first >= last) return all;
  // Both bounds move up with i, so the first query that sees anything and the last one bound the
  // rest.
  const int64_t lo_p = first + kv_len - query_len, hi_p = last - 1 + kv_len - query_len;
  const int64_t begin = band.left == -1 ? 0 : std::max<int64_t>(lo_p - band.left, 0);
  const int64_t end = band.right == -1 ? kv_len : std::min<int64_t>(hi_p + band.right + 1, kv_len);
  return begin < end ? KeyRange{begin, end} : all;
}

}  // namespace rapt
