#include "rapt/batch.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "core/check.hpp"
#include "core/strides.hpp"
#include "problem/page_ids.hpp"

namespace rapt {
namespace {

// Kernels number keys in 32 bits, and round a number up to the end of its block.
constexpr int32_t kMaxKvLen = std::numeric_limits<int32_t>::max() - 0xffff;

void check_starts(std::span<const int32_t> starts, size_t num_requests, const char* name) {
  check(starts.size() == num_requests + 1, name, " has ", starts.size(), " entries for ",
        num_requests, " requests: must have one more than kv_len");
  check(starts[0] == 0, name, "[0] is ", starts[0], ": must be 0");
  for (size_t b = 0; b < num_requests; b++)
    check(starts[b] <= starts[b + 1], name, "[", b + 1, "] is ", starts[b + 1], " after ",
          starts[b], ": must not decrease");
}

// The lengths that every batch has.
void check_lengths(const Batch& batch) {
  const size_t num_requests = batch.kv_len.size();
  check(num_requests <= size_t{1} << 24, "kv_len has ", num_requests,
        " requests: at most 2^24 in a step");
  // B = 0 may come with no query_start at all.
  if (num_requests > 0 || !batch.query_start.empty())
    check_starts(batch.query_start, num_requests, "query_start");
  for (size_t b = 0; b < num_requests; b++)
    check(batch.kv_len[b] >= 0 && batch.kv_len[b] <= kMaxKvLen, "kv_len[", b, "] is ",
          batch.kv_len[b], ": must not be negative, and at most ", kMaxKvLen);
}

void check_page_table(const Batch& batch, int32_t page_size) {
  const TensorView& table = batch.page_table;
  const int64_t num_requests = batch.num_requests();
  check(table.rank == 2, "page_table has rank ", table.rank, ": must be int32 [requests, width]");
  check(table.dtype == DType::kInt32, "page_table is ", to_string(table.dtype),
        ": must be int32; convert the ids, never reinterpret them");
  check(table.shape[0] >= num_requests, "page_table has ", table.shape[0], " rows for ",
        num_requests, " requests");
  check(table.shape[1] <= 1 || table.stride[1] == 1, "page_table's last axis has stride ",
        table.stride[1], ": must be 1");
  check(batch.num_pages >= 0 && batch.num_pages <= std::numeric_limits<int32_t>::max(),
        "num_pages is ", batch.num_pages, ": must be in [0, 2^31 - 1]");
  check(reinterpret_cast<uintptr_t>(table.data) % sizeof(int32_t) == 0, "page_table is at ",
        table.data, ": must be aligned to its 4-byte ids");
  const int64_t row_stride = stride_of(table, 0);
  checked_mul(checked_mul(num_requests, row_stride, "page_table's rows"), sizeof(int32_t),
              "page_table's rows");
  // The longest speaks for all: no division for each.
  const int32_t longest = *std::max_element(batch.kv_len.begin(), batch.kv_len.end());
  const auto pages_of = [&](int64_t b) { return ceil_div(batch.kv_len[b], page_size); };
  if (ceil_div(longest, page_size) > table.shape[1])
    for (int64_t b = 0; b < num_requests; b++)
      check(pages_of(b) <= table.shape[1], "kv_len[", b, "] is ", batch.kv_len[b], ", which takes ",
            pages_of(b), " pages of ", page_size, ", but page_table has ", table.shape[1],
            " columns: widen the table");
  if (table.device.kind != DeviceKind::kCpu || longest == 0) return;
  const auto* ids = static_cast<const int32_t*>(table.data);
  check(ids != nullptr, "page_table has no data, but its requests have pages");
  if (ids_in_pool({ids, row_stride, batch.kv_len, page_size},
                  static_cast<uint32_t>(batch.num_pages)))
    return;
  for (int64_t b = 0; b < num_requests; b++, ids += row_stride) {
    const int64_t needed = pages_of(b);
    check(needed == 0 || batch.num_pages > 0, "num_pages is 0, but request ", b, " has ", needed,
          " pages: set it to the pages of the pool");
    for (int64_t i = 0; i < needed; i++)
      check(ids[i] >= 0 && ids[i] < batch.num_pages, "page_table[", b, ", ", i, "] is ", ids[i],
            ": the pool has pages 0 to ", batch.num_pages - 1);
  }
}

}  // namespace

void validate(const Batch& batch, const AttentionSpec& spec) {
  check_lengths(batch);
  const size_t num_requests = batch.kv_len.size();
  if (spec.is_paged()) {
    check(batch.kv_start.empty(), "kv_start is given for paged keys (page_size ", spec.page_size,
          "): leave it empty, or set page_size = 0");
    if (num_requests > 0) check_page_table(batch, spec.page_size);
    return;
  }
  check(!batch.page_table.has_value(),
        "page_table is given for ragged keys (page_size 0): leave it empty, or set page_size");
  if (num_requests == 0 && batch.kv_start.empty()) return;
  check_starts(batch.kv_start, num_requests, "kv_start");
  for (size_t b = 0; b < num_requests; b++)
    check(batch.kv_len[b] <= batch.kv_start[b + 1] - batch.kv_start[b], "kv_len[", b, "] is ",
          batch.kv_len[b], ", but kv_start leaves it ", batch.kv_start[b + 1] - batch.kv_start[b],
          " rows");
}

int64_t custom_mask_bytes(const Batch& batch) {
  check_lengths(batch);
  int64_t bits = 0;
  for (int64_t b = 0; b < batch.num_requests(); b++)
    bits = checked_add(bits, checked_mul(batch.query_len(b), batch.kv_len[b], "custom mask"),
                       "custom mask");
  return ceil_div(bits, 8);
}

}  // namespace rapt
