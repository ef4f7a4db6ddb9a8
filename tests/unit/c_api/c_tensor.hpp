// TensorViews, batches and arguments of the C++ tests as a C caller would pass them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rapt/rapt.h"
#include "rapt/rapt.hpp"

namespace rapt::test {

inline DLDataType dl(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return {kDLFloat, 32, 1};
    case DType::kFloat16:
      return {kDLFloat, 16, 1};
    case DType::kBFloat16:
      return {kDLBfloat, 16, 1};
    case DType::kFloat8E4M3:
      return {kDLFloat8_e4m3fn, 8, 1};
    case DType::kFloat8E5M2:
      return {kDLFloat8_e5m2, 8, 1};
    case DType::kUInt8:
      return {kDLUInt, 8, 1};
    case DType::kInt32:
      return {kDLInt, 32, 1};
    case DType::kInt64:
      return {kDLInt, 64, 1};
  }
  return {};
}

// Owns shape and strides, which the DLTensor points to: it stays where it was made.
struct CTensor {
  explicit CTensor(const TensorView& view) : given(view.has_value()) {
    std::copy_n(view.shape.begin(), TensorView::kMaxRank, shape);
    std::copy_n(view.stride.begin(), TensorView::kMaxRank, strides);
    tensor.data = view.data;
    tensor.device = {kDLCPU, 0};
    tensor.ndim = view.rank;
    tensor.dtype = dl(view.dtype);
    tensor.shape = shape;
    tensor.strides = strides;
  }
  CTensor(const CTensor&) = delete;
  CTensor& operator=(const CTensor&) = delete;

  DLTensor* get() { return given ? &tensor : nullptr; }

  bool given;
  int64_t shape[TensorView::kMaxRank], strides[TensorView::kMaxRank];
  DLTensor tensor{};
};

struct CRunArgs {
  explicit CRunArgs(const RunArgs& run)
      : q(run.q),
        k(run.k),
        v(run.v),
        out(run.out),
        lse(run.lse),
        alibi_slopes(run.alibi_slopes),
        sinks(run.sinks),
        custom_mask(run.custom_mask),
        k_scale(run.k_scale),
        v_scale(run.v_scale) {
    args.struct_size = sizeof args;
    args.q = q.get();
    args.k = k.get();
    args.v = v.get();
    args.out = out.get();
    args.lse = lse.get();
    args.alibi_slopes = alibi_slopes.get();
    args.sinks = sinks.get();
    args.custom_mask = custom_mask.get();
    args.k_scale = k_scale.get();
    args.v_scale = v_scale.get();
    args.workspace = run.workspace.data;
    args.workspace_bytes = run.workspace.bytes;
  }

  CTensor q, k, v, out, lse, alibi_slopes, sinks, custom_mask, k_scale, v_scale;
  rapt_run_args args{};
};

struct CBatch {
  explicit CBatch(const Batch& given) : page_table(given.page_table) {
    batch.struct_size = sizeof batch;
    batch.num_requests = given.num_requests();
    batch.query_start = given.query_start.data();
    batch.kv_len = given.kv_len.data();
    batch.page_table = page_table.get();
    batch.num_pages = given.num_pages;
    batch.kv_start = given.kv_start.empty() ? nullptr : given.kv_start.data();
  }

  CTensor page_table;
  rapt_batch batch{};
};

inline rapt_attention_spec c_spec(const AttentionSpec& spec) {
  rapt_attention_spec c{};
  c.struct_size = sizeof c;
  c.num_query_heads = spec.num_query_heads;
  c.num_kv_heads = spec.num_kv_heads;
  c.head_dim_qk = spec.head_dim_qk;
  c.head_dim_vo = spec.head_dim_vo;
  c.dtype = dl(spec.dtype);
  c.kv_format = static_cast<rapt_kv_format>(spec.kv_format);
  c.page_size = spec.page_size;
  c.kind = static_cast<rapt_attention_kind>(spec.kind);
  c.causal = spec.causal ? (*spec.causal ? RAPT_YES : RAPT_NO) : RAPT_DEFAULT;
  c.has_window = !(spec.window == Window{});
  c.window_left = c.has_window ? spec.window.left : 0;
  c.window_right = c.has_window ? spec.window.right : 0;
  c.scale = spec.scale.value_or(0);
  c.softcap = spec.softcap;
  c.alibi = spec.alibi;
  c.sinks = spec.sinks;
  c.custom_mask = spec.custom_mask;
  c.kv_scales = static_cast<rapt_kv_scales>(spec.kv_scales);
  c.needs_lse = spec.needs_lse;
  c.batch_invariant = spec.batch_invariant;
  return c;
}

}  // namespace rapt::test
