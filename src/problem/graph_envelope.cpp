#include "rapt/graph_envelope.hpp"

#include <algorithm>
#include <limits>

#include "core/check.hpp"
#include "core/strides.hpp"
#include "problem/envelope_check.hpp"

namespace rapt {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

void check_bound(const char* name, int64_t value, int64_t least, int64_t most) {
  check(value >= least && value <= most, "graph envelope: ", name, " is ", value, ": must be from ",
        least, " to ", most);
}

void check_max_tokens(const GraphEnvelope& envelope) {
  check_bound("max_tokens", envelope.max_tokens, 1, kMaxInt);
}
void check_max_kv_len(const GraphEnvelope& envelope) {
  check_bound("max_kv_len", envelope.max_kv_len, 1, kMaxInt - 0xffff);
}

void check_page_table(const GraphEnvelope& envelope, int32_t page_size) {
  const TensorView& table = envelope.page_table;
  const int64_t width = ceil_div(envelope.max_kv_len, page_size);
  check(table.rank == 2 && table.dtype == DType::kInt32, "graph envelope: page_table is ",
        table.describe(), ": must be int32 [max_requests, width]");
  check(table.device.kind == DeviceKind::kCuda, "graph envelope: page_table is on the host: leave ",
        "it out, and give each batch its own, which replan() copies");
  check(table.shape[0] >= envelope.max_requests && table.shape[1] >= width,
        "graph envelope: page_table is ", table.describe(), ": must be at least [",
        envelope.max_requests, ", ", width, "] for max_requests and max_kv_len");
  check(table.shape[1] <= 1 || table.stride[1] == 1, "graph envelope: page_table's last axis has ",
        "stride ", table.stride[1], ": must be 1");
  check(table.data && reinterpret_cast<uintptr_t>(table.data) % sizeof(int32_t) == 0,
        "graph envelope: page_table is at ", table.data, ": must be aligned to its 4-byte ids");
}

// What a batch has too much of, put together.
class Excess {
 public:
  template <typename... Name>
  void add(int64_t value, int64_t bound, const Name&... name) {
    if (value > bound) [[unlikely]]
      text_ += concat(text_.empty() ? "" : "; ", name..., " is ", value, ", at most ", bound);
  }
  // The first value that is too large.
  template <typename ValueOf>
  void add_first(int64_t count, int64_t bound, const char* name, const ValueOf& value_of) {
    for (int64_t b = 0; b < count; b++)
      if (value_of(b) > bound) [[unlikely]]
        return add(value_of(b), bound, name, "[", b, "]");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

void validate(const GraphEnvelope& envelope, const AttentionSpec& spec) {
  check_bound("max_requests", envelope.max_requests, 1, 1 << 24);
  check_max_tokens(envelope);
  check_bound("max_query_len", envelope.max_query_len, 0, envelope.max_tokens);
  check_max_kv_len(envelope);
  if (spec.is_paged()) {
    check_bound("num_pages", envelope.num_pages, 1, kMaxInt);
    check(envelope.max_kv_rows == 0, "graph envelope: max_kv_rows is ", envelope.max_kv_rows,
          " for paged keys (page_size ", spec.page_size, "): leave it 0");
    if (envelope.page_table.has_value()) check_page_table(envelope, spec.page_size);
  } else {
    check_bound("max_kv_rows", envelope.max_kv_rows, 1, kMaxInt);
    check(envelope.num_pages == 0 && !envelope.page_table.has_value(),
          "graph envelope: num_pages or page_table is given for ragged keys (page_size 0): leave "
          "them out");
  }
}

int64_t custom_mask_bytes(const GraphEnvelope& envelope) {
  check_max_tokens(envelope);
  check_max_kv_len(envelope);
  return ceil_div(int64_t{envelope.max_tokens} * envelope.max_kv_len, 8);
}

void check_within(const GraphEnvelope& envelope, const Batch& batch) {
  const int64_t num_requests = batch.num_requests();
  Excess excess;
  excess.add(num_requests, envelope.max_requests, "the number of requests");
  excess.add(batch.num_tokens(), envelope.max_tokens, "the number of query tokens");
  excess.add_first(num_requests, envelope.query_len_bound(), "query_len",
                   [&](int64_t b) { return batch.query_len(b); });
  excess.add_first(num_requests, envelope.max_kv_len, "kv_len",
                   [&](int64_t b) { return batch.kv_len[b]; });
  if (batch.page_table.has_value()) excess.add(batch.num_pages, envelope.num_pages, "num_pages");
  excess.add(batch.kv_start.empty() ? 0 : batch.kv_start.back(), envelope.max_kv_rows,
             "kv_start's last");
  check(excess.text().empty(), "the batch is outside the plan's graph envelope: ", excess.text(),
        ": make the envelope larger, or run this batch by a plan of its own");

  if (num_requests == 0) return;
  const TensorView &its = envelope.page_table, &given = batch.page_table;
  if (!its.has_value()) {
    check(given.device.kind == DeviceKind::kCpu, "page_table is on cuda:", given.device.index,
          ", but the plan's graph envelope has none: give it there, so that its address is kept");
    return;
  }
  const bool same = given.data == its.data && given.device == its.device &&
                    (num_requests == 1 || stride_of(given, 0) == stride_of(its, 0));
  if (!same) [[unlikely]]
    fail(ErrorCode::kInvalidArgument, "page_table is ", given.describe(), " at ", given.data,
         ", the graph envelope's is ", its.describe(), " at ", its.data,
         ": a captured graph reads that one, so write the ids there");
}

}  // namespace rapt
