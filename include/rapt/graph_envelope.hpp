// The batches that one captured CUDA graph serves.
#pragma once

#include <cstdint>

#include "rapt/batch.hpp"
#include "rapt/export.hpp"
#include "rapt/spec.hpp"
#include "rapt/tensor.hpp"

namespace rapt {

// What the batches of a plan may have at most: Attention::plan() of an envelope fixes whatever a
// graph captures of a run - grids, addresses, the workspace - for the largest of them.
//
// A run costs what the envelope may take: its thread blocks are started, those without work end at
// once. So a model has several: by the number of requests, for decoding and for mixed steps.
struct GraphEnvelope {
  int32_t max_requests = 0;  // B; 1 to 2^24
  int32_t max_tokens = 0;    // T, query tokens of all requests
  // Of one request; 0 = max_tokens. 1 is single-token decoding, for which GraphSupport has a level
  // of its own, as it has one launch.
  int32_t max_query_len = 0;
  int32_t max_kv_len = 0;  // of one request; at most 2^31 - 2^16

  // Paged: pages in the pool. The k and v of a captured run have as many.
  int64_t num_pages = 0;
  // Paged: the page table of every batch, int32 [max_requests or more, width], on the device that
  // runs; a run reads what its ids are then. Absent: each batch has one on the host, whose ids are
  // checked and copied.
  TensorView page_table{};
  // Ragged: what kv_start[B] is at most. The k and v of a captured run have as many rows.
  int64_t max_kv_rows = 0;

  int64_t query_len_bound() const { return max_query_len ? max_query_len : max_tokens; }
};

// Throws Error(kInvalidArgument) that names the first field out of its bounds.
RAPT_API void validate(const GraphEnvelope& envelope, const AttentionSpec& spec);

// Bytes of the packed custom mask that the run of an envelope's plan takes: those of max_tokens
// queries with max_kv_len keys each. A batch's own bits are the first of them. Throws
// Error(kInvalidArgument) where one of these two is out of its bounds.
RAPT_API int64_t custom_mask_bytes(const GraphEnvelope& envelope);

}  // namespace rapt
