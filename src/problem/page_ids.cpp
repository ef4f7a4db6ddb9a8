#include "problem/page_ids.hpp"

#include <algorithm>
#include <bit>

namespace rapt {
namespace {

// Ids are looked at side by side in this many lanes, because each waits for its last step.
constexpr int64_t kLanes = 32;

// How many pages a length takes, by a multiplication: rows are too many for divisions.
class PageCounts {
 public:
  explicit PageCounts(int32_t page_size)
      : shift_(31 + std::bit_width(static_cast<uint32_t>(page_size - 1))),
        reciprocal_((uint64_t{1} << shift_) / static_cast<uint32_t>(page_size) + 1) {}
  // (kv_len - 1) / page_size + 1, or 0: with a product of n < 2^31 the reciprocal, too large by at
  // most page_size / 2^shift_, is so by less than 1 / page_size.
  int64_t operator()(int32_t kv_len) const {
    const uint64_t any = kv_len != 0, n = static_cast<uint32_t>(kv_len) - any;
    return static_cast<int64_t>((n * reciprocal_ >> shift_) + any);
  }

 private:
  int shift_;
  uint64_t reciprocal_;
};

// A negative id is a large one without its sign.
[[gnu::always_inline]] inline void take_largest(const int32_t* ids, uint32_t (&lanes)[kLanes]) {
  for (int64_t lane = 0; lane < kLanes; lane++)
    lanes[lane] = std::max(lanes[lane], static_cast<uint32_t>(ids[lane]));
}

[[gnu::always_inline]] inline bool all_in_pool(const PageIds& pages, uint32_t num_pages) {
  if (num_pages == 0)
    return std::all_of(pages.kv_len.begin(), pages.kv_len.end(), [](int32_t n) { return n == 0; });
  const PageCounts count_of(pages.page_size);
  uint32_t lanes[kLanes] = {};  // put together at the end, because rows may be short
  uint32_t largest = 0;
  const int32_t* row = pages.ids;
  for (size_t b = 0; b < pages.kv_len.size(); b++, row += pages.row_stride) {
    const int64_t count = count_of(pages.kv_len[b]);
    if (count < kLanes) {
      for (int64_t i = 0; i < count; i++)
        largest = std::max(largest, static_cast<uint32_t>(row[i]));
      continue;
    }
    for (int64_t i = 0; i + kLanes < count; i += kLanes) take_largest(row + i, lanes);
    take_largest(row + count - kLanes, lanes);  // some once more, for no harm
  }
  for (const uint32_t lane : lanes) largest = std::max(largest, lane);
  return largest < num_pages;
}

using Check = bool (*)(const PageIds&, uint32_t);

#if defined(__x86_64__)
[[gnu::target("avx2")]] bool ids_in_pool_avx2(const PageIds& pages, uint32_t num_pages) {
  return all_in_pool(pages, num_pages);
}

[[gnu::target("avx512f")]] bool ids_in_pool_avx512(const PageIds& pages, uint32_t num_pages) {
  return all_in_pool(pages, num_pages);
}

Check check_of_this_cpu() {
  if (__builtin_cpu_supports("avx512f")) return ids_in_pool_avx512;
  return __builtin_cpu_supports("avx2") ? ids_in_pool_avx2 : ids_in_pool_baseline;
}
#else
Check check_of_this_cpu() {
  return ids_in_pool_baseline;
}
#endif

}  // namespace

bool ids_in_pool_baseline(const PageIds& pages, uint32_t num_pages) {
  return all_in_pool(pages, num_pages);
}

bool ids_in_pool(const PageIds& pages, uint32_t num_pages) {
  static const Check check = check_of_this_cpu();
  return check(pages, num_pages);
}

}  // namespace rapt
