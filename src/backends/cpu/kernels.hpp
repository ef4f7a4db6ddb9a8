// The seam between the CPU backend and its kernels: plain structs, and one table of function
// pointers for each instruction set. Kernel files are compiled with that set's flags, so nothing
// here or below may define an inline function with linkage that the linker could share with code
// for older processors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/work.hpp"
#include "rapt/device.hpp"
#include "rapt/dtype.hpp"

namespace rapt::cpu {

// Tensors and rules of one layer's run. Strides are in bytes. Heads of KV head h are [h * group, (h
// + 1) * group).
struct Problem {
  const std::byte* q = nullptr;  // [T, Hq, Dqk] of dtype
  const std::byte* k =
      nullptr;  // [num_pages, page_size, Hkv, Dqk], or ragged [Tk, Hkv, Dqk], of dtype
  const std::byte* v = nullptr;
  std::byte* out = nullptr;  // [T, Hq, Dvo] of dtype
  float* lse = nullptr;      // [Hq, T]; null if not wanted
  int64_t q_token_stride, q_head_stride;
  int64_t k_page_stride, k_token_stride, k_head_stride;
  int64_t v_page_stride, v_token_stride, v_head_stride;
  int64_t out_token_stride, out_head_stride;
  int64_t lse_head_stride, lse_token_stride;
  DType dtype;  // float32, float16 or bfloat16: of q, k, v and out
  int32_t num_query_heads, num_kv_heads, group, head_dim_qk, head_dim_vo;
  int32_t page_size;  // tokens per page; 0 = ragged
  float scale;
  float softcap;                      // 0 = none
  int64_t window_left, window_right;  // AttentionSpec::visible_band(): -1 = unlimited
  const float* alibi_slopes;          // [Hq] or null
  const float* sinks;                 // [Hq] or null
  const uint8_t* custom_mask;         // packed bits or null
  const float* k_scale;               // [1] or [Hkv] or null
  const float* v_scale;
  bool scales_per_head;
};

// One request of the step.
struct Request {
  int64_t query_start;  // its first row of q and out
  int32_t query_len;
  int32_t kv_len;
  const int32_t* pages;  // its row of the page table; null when ragged
  int64_t kv_start;      // ragged: its first row of k and v
  int64_t mask_bit;      // its first bit of the custom mask
};

// Partial state of a row: normalised fp32 output [Dvo], v_scale applied, and natural lse, without
// the sink. lse -inf: no key seen, and the output may be anything.
struct Partials {
  float* out;          // [num_rows, out_stride], rows 64-byte aligned
  float* lse;          // [num_rows]
  int64_t out_stride;  // elements
};

using Kernel = void (*)(const Problem&, const Request&, const Work&, const Partials&,
                        std::byte* scratch);

// Bounds of what plans may ask for, and the kernels of one instruction set.
struct Kernels {
  CpuIsa isa;
  // Many rows: K and V of a key block are packed once for all rows of the work. One KV head a call.
  Kernel prefill;
  // Few rows (at most max_decode_rows a KV head): K and V stream from the cache, page by page, all
  // KV heads of the work at each page; the next pages are prefetched through the table.
  Kernel decode;
  // Scratch bytes of one thread for calls on this problem, 64-byte aligned; needs no clearing.
  size_t (*prefill_scratch_bytes)(const Problem&);
  size_t (*decode_scratch_bytes)(const Problem&);
  int32_t max_decode_rows;   // a request with more rows for each KV head goes to prefill
  int32_t max_prefill_rows;  // rows of one call
};

// Kernels of exactly that level, which the processor must have; levels that were not compiled give
// the next lower one.
const Kernels& kernels(CpuIsa isa);

// The AMX kernels with tiles in plain code, for tests on processors that have kAvx512Bf16 but no
// AMX; null where they were not compiled.
const Kernels* amx_stand_in();

}  // namespace rapt::cpu
