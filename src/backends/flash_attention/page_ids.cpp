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

void stage_page_ids(const Batch& batch, int32_t page_size, int* staged) {
  const auto* ids = static_cast<const int32_t*>(batch.page_table.data);
  const int64_t row_stride = stride_of(batch.page_table, 0);
  // Rows that follow each other without a gap are copied as one.
  const int32_t* begin = ids;
  int64_t copied = 0, next = 0;
  const auto copy = [&] {
    if (next > copied) std::copy_n(begin, next - copied, staged + copied);
    copied = next;
  };
  for (const int32_t kv_len : batch.kv_len) {
    if (ids != begin + (next - copied)) {
      copy();
      begin = ids;
    }
    next += ceil_div(kv_len, page_size);
    ids += row_stride;
  }
  copy();
}

}  // namespace rapt::flash_attention
