// The tensors of a step, random or from files, in memory that the tool owns.
#pragma once

#include <cstdint>
#include <vector>

#include "rapt/rapt.hpp"
#include "step.hpp"
#include "tensor_file.hpp"

namespace rapt_tool {

// Inputs are drawn from a normal distribution with the step's seed (sinks and scales near 1), never
// zeros. Outputs start as NaN. Paged: pages are dealt in random order; what no request owns is NaN.
struct StepTensors {
  HostTensor q;     // [T, Hq, Dqk]
  HostTensor k, v;  // dense [sum of kv_len, Hkv, D], request after request
  HostTensor out;   // [T, Hq, Dvo]
  HostTensor lse;   // [Hq, T]
  HostTensor alibi_slopes, sinks, custom_mask, k_scale, v_scale;  // empty where the spec has none
  std::vector<int32_t> query_start, kv_start;                     // [B + 1]

  // Paged only.
  rapt::KvCacheGeometry geometry;
  HostTensor pool;          // bytes
  HostTensor page_table;    // [B, width]
  HostTensor slot_mapping;  // of every row of k and v

  rapt::Batch batch(const Step& step) const;
};

// Throws rapt::Error naming the tensor whose file does not fit the step.
StepTensors make_tensors(const Step& step);

// (query, key) pairs that some query sees, over all requests (a custom mask not counted).
int64_t visible_pairs(const Step& step);
// Keys that some query of their request sees, over all requests.
int64_t visible_keys(const Step& step);

}  // namespace rapt_tool
