// One step's requests: lengths on the host, page tables where the device reads them.
#pragma once

#include <cstdint>
#include <span>

#include "rapt/export.hpp"
#include "rapt/spec.hpp"
#include "rapt/tensor.hpp"

namespace rapt {

// A step of B requests with T = query_start[B] query tokens, packed request after request.
//
// Lengths decide, tables never: of page_table's row b only the first ceil(kv_len[b] / page_size)
// entries are read. B = 0, T = 0, query_len 0 (padding) and kv_len 0 with queries present are
// legal.
struct Batch {
  std::span<const int32_t> query_start{};  // [B + 1], from 0, nondecreasing
  // [B], tokens cached for the request, this step's included; each at most 2^31 - 2^16.
  std::span<const int32_t> kv_len{};

  // Paged: spec.page_size > 0.
  // int32 [B, width], on the device that runs or on the host; rows may be strided.
  TensorView page_table{};
  // Pages in the pool: ids are checked against it where the table is on the host, and where it is
  // on a GPU with ContextOptions::check_device_indices, by each run.
  int64_t num_pages = 0;

  // Ragged: spec.page_size == 0. Request b's keys are rows [kv_start[b], kv_start[b] + kv_len[b])
  // of k and v.
  std::span<const int32_t> kv_start{};  // [B + 1], from 0, nondecreasing

  int64_t num_requests() const { return static_cast<int64_t>(kv_len.size()); }
  int64_t num_tokens() const { return query_start.empty() ? 0 : query_start.back(); }
  int64_t query_len(int64_t b) const { return query_start[b + 1] - query_start[b]; }
};

// Throws Error(kInvalidArgument): decreasing or negative starts, negative lengths, lengths that do
// not fit the table or the ragged ranges, page ids outside the pool (host tables). With a decoder
// kind kv_len may be less than query_len: the first rows then see no key.
RAPT_API void validate(const Batch& batch, const AttentionSpec& spec);

// Bytes of the packed custom mask of a batch: request b's bits follow those of request b - 1
// without padding; bit (i, j) of a request is number i * kv_len + j of its own; bit n of the whole
// is bit n % 8 (least significant first) of byte n / 8. Overflow-checked.
RAPT_API int64_t custom_mask_bytes(const Batch& batch);

}  // namespace rapt
