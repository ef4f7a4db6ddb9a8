#include "problem/page_ids.hpp"

#include "core/check.hpp"

namespace rapt {
namespace {

// Ids are looked at side by side in this many lanes, because each waits for its last step.
constexpr int64_t kLanes = 32;

// Sets the sign of a lane for an id that is negative, or that leaves less than nothing of the pool
// above it: no branches, and what any vector unit can do.
[[gnu::always_inline]] inline void add_signs(const int32_t* ids, int64_t count, uint32_t num_pages,
                                             uint32_t (&lanes)[kLanes]) {
  uint32_t signs[kLanes] = {};
  for (int64_t i = 0; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; lane++) {
      const auto id = static_cast<uint32_t>(ids[i + lane]);
      signs[lane] |= id | (num_pages - 1 - id);
    }
  }
  for (int64_t lane = 0; lane < kLanes; lane++) lanes[lane] |= signs[lane];
}

[[gnu::always_inline]] inline bool signs_are_clear(const PageIds& pages, uint32_t num_pages) {
  uint32_t lanes[kLanes] = {};  // put together at the end, because rows may be short
  const int32_t* row = pages.ids;
  for (size_t b = 0; b < pages.kv_len.size(); b++, row += pages.row_stride) {
    const int64_t count = ceil_div(pages.kv_len[b], pages.page_size);
    if (count >= kLanes) {
      add_signs(row, count, num_pages, lanes);
      add_signs(row + count - kLanes, kLanes, num_pages, lanes);  // some once more, for no harm
      continue;
    }
    for (int64_t i = 0; i < count; i++) {
      const auto id = static_cast<uint32_t>(row[i]);
      lanes[0] |= id | (num_pages - 1 - id);
    }
  }
  uint32_t signs = 0;
  for (const uint32_t lane : lanes) signs |= lane;
  return signs >> 31 == 0;
}

using Check = bool (*)(const PageIds&, uint32_t);

#if defined(__x86_64__)
[[gnu::target("avx2")]] bool ids_in_pool_avx2(const PageIds& pages, uint32_t num_pages) {
  return signs_are_clear(pages, num_pages);
}

[[gnu::target("avx512f")]] bool ids_in_pool_avx512(const PageIds& pages, uint32_t num_pages) {
  return signs_are_clear(pages, num_pages);
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
  return signs_are_clear(pages, num_pages);
}

bool ids_in_pool(const PageIds& pages, uint32_t num_pages) {
  static const Check check = check_of_this_cpu();
  return check(pages, num_pages);
}

}  // namespace rapt
