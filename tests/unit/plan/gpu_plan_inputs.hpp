// What the GPU planner's tests plan.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/gpu_plan.hpp"
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

// With the works of all tiles, tile after tile.
struct Planned : WorkList {
  std::vector<device::AttentionWork> works;
};

inline void plan_work(const Batch& batch, const AttentionSpec& spec, std::span<const Machine> tiles,
                      std::optional<int64_t> page_table_width, Planned& list) {
  plan_work(batch, spec, tiles, page_table_width, static_cast<WorkList&>(list));
  list.works.assign(list.pieces.size(), {});
  device::AttentionWork* to = list.works.data();
  for (size_t i = 0; i < tiles.size(); to += list.num_works[i], i++)
    write_works(list, tiles, i, to);
}

}  // namespace rapt::gpu
