// Checking the page ids of a step, of which there may be a million.
#pragma once

#include <cstdint>
#include <span>

namespace rapt {

// The ids of a page table that lengths make a step read: of row b, `row_stride` ids behind row
// b - 1, the first ceil(kv_len[b] / page_size).
struct PageIds {
  const int32_t* ids;
  int64_t row_stride;
  std::span<const int32_t> kv_len;
  int32_t page_size;
};

// Whether every id is in [0, num_pages), num_pages < 2^31.
bool ids_in_pool(const PageIds& pages, uint32_t num_pages);

// The same for any processor, whatever this one can do: for tests.
bool ids_in_pool_baseline(const PageIds& pages, uint32_t num_pages);

}  // namespace rapt
