#include "backends/flash_attention/page_ids.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/strides.hpp"

namespace rapt::flash_attention {

int64_t num_page_ids(const Batch& batch, int32_t page_size) {
  int64_t count = 0;
  for (const int32_t kv_len : batch.kv_len) count += ceil_div(kv_len, page_size);
  return count;
}

void stage_page_ids(const Batch& batch, int32_t page_size, int* staged,
                    std::span<device::AttentionRequest> requests) {
  const auto* ids = static_cast<const int32_t*>(batch.page_table.data);
  const int64_t row_stride = stride_of(batch.page_table, 0);
  int64_t next = 0;
  for (size_t b = 0; b < requests.size(); b++) {
    const int64_t count = ceil_div(batch.kv_len[b], page_size);
    if (count) std::copy_n(ids + static_cast<int64_t>(b) * row_stride, count, staged + next);
    requests[b].first_page = next;
    next += count;
  }
}

}  // namespace rapt::flash_attention
