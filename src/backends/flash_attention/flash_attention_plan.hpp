// What a run launches: grids, and where on the device its kernels find their lists.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "backends/backend.hpp"
#include "backends/flash_attention/graph_memory.hpp"
#include "backends/flash_attention/kernel_choice.hpp"
#include "backends/flash_attention/plan_memory.hpp"
#include "backends/flash_attention/run_chains.hpp"
#include "launch/kernel.hpp"
#include "plan/gpu_envelope.hpp"

namespace rapt {

struct FlashAttentionPlan final : BackendPlan {
  // Of one tile: its works, each for every KV head.
  struct TileLaunch {
    const cuda::Kernel* kernel = nullptr;
    int32_t tile_rows = 0;
    const device::AttentionWork* works = nullptr;
    int64_t count = 0;
  };

  // Of tiles whose keys are cut.
  struct MergeLaunch {
    const cuda::Kernel* kernel = nullptr;
    const device::MergeWork* works = nullptr;
    int64_t count = 0;
    int32_t blocks_per_work = 0;
  };

  explicit FlashAttentionPlan(const cuda::Context& context) : memory(context), chains(context) {}
  std::string describe() const override;

  gpu::WorkList list;  // of the batch
  // Where that is copied: by the first run of a stream, or of a graph envelope's plan by each
  // plan_within().
  flash_attention::PlanMemory memory;
  std::optional<flash_attention::GraphMemory> graph_memory;
  gpu::EnvelopeBounds bounds;         // of the envelope
  flash_attention::RunChains chains;  // of a batch's plan; graphs of an envelope's are the caller's

  // On the device.
  const device::AttentionRequest* requests = nullptr;  // where page ids are checked
  const int* page_ids = nullptr;
  std::array<TileLaunch, flash_attention::kNumTiles> launches;
  MergeLaunch merge;
  size_t partial_lse_offset = 0;  // in the workspace
  bool checks_page_ids = false;   // by each run
};

}  // namespace rapt
