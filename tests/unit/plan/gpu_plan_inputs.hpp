// What the GPU planner's tests plan.
#pragma once

#include <vector>

#include "rapt/batch.hpp"
#include "rapt/spec.hpp"

namespace rapt::gpu {

// A batch that owns its lengths; planning reads nothing else of it.
struct Lengths {
  std::vector<int32_t> query_start{0}, kv_len, kv_start{0};
  void add(int32_t query_len, int32_t keys) {
    query_start.push_back(query_start.back() + query_len);
    kv_len.push_back(keys);
    kv_start.push_back(kv_start.back() + keys);
  }
  Batch batch() const {
    Batch batch;
    batch.query_start = query_start;
    batch.kv_len = kv_len;
    batch.kv_start = kv_start;
    return batch;
  }
};

inline AttentionSpec spec_of(int32_t kv_heads, int32_t group) {
  AttentionSpec spec;
  spec.num_query_heads = kv_heads * group;
  spec.num_kv_heads = kv_heads;
  spec.head_dim_qk = 128;
  spec.dtype = DType::kBFloat16;
  return spec;
}

}  // namespace rapt::gpu
