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
  // Rows that follow each other without a gap are copied as one.
  const int32_t* begin = ids;
  int64_t copied = 0, next = 0;
  const auto copy = [&] {
    if (next > copied) std::copy_n(begin, next - copied, staged + copied);
    copied = next;
  };
  for (size_t b = 0; b < requests.size(); b++, ids += row_stride) {
    if (ids != begin + (next - copied)) {
      copy();
      begin = ids;
    }
    requests[b].first_page = next;
    next += ceil_div(batch.kv_len[b], page_size);
  }
  copy();
}

}  // namespace rapt::flash_attention
