// FlashAttention, generation 2: mma.sync and cp.async, on every GPU of compute capability 8.0 and
// later. A plan is a list of thread blocks in the device's memory; a run is one launch for each
// tile that the plan uses, and one that merges rows whose keys were cut. The launches of a graph
// envelope's plan are those of the largest batch within it.
#pragma once

#include <array>
#include <memory>

#include "backends/backend.hpp"
#include "backends/cuda/cuda_gpu.hpp"
#include "backends/flash_attention/flash_attention_plan.hpp"
#include "kernels/abi/write_kv.hpp"
#include "plan/gpu_plan.hpp"

namespace rapt {

class FlashAttentionBackend final : public AttentionBackend {
 public:
  // Kernels are compiled or loaded by the first plan that launches them, and by the first
  // write_kv().
  FlashAttentionBackend(const AttentionSpec& spec, CudaGpu& gpu);

  Device tensor_device() const override { return gpu_.tensor_device(); }
  std::unique_ptr<BackendPlan> make_plan() const override;
  void plan(const Batch& batch, BackendPlan& plan) const override;
  void plan_envelope(BackendPlan& plan, void* stream) const override;
  void plan_within(const Batch& batch, BackendPlan& plan, void* stream) const override;
  // Throws Error(kUnsupported), before anything is written, for rows of q, k, v that do not begin
  // at multiples of 16 bytes, or of out at multiples of 4.
  void run(const BackendPlan& plan, const RunArgs& args) const override;
  void write_kv(const WriteKvArgs& args) const override;

 private:
  // Its kernel is compiled or loaded where there are works.
  FlashAttentionPlan::TileLaunch launch_of(size_t tile, const device::AttentionWork* works,
                                           int64_t count) const;
  // Of works of at most that many rows of each KV head. And the workspace, which holds the partial
  // rows.
  void set_merge(const device::MergeWork* works, int64_t num_works, int64_t max_rows,
                 int64_t num_partial_rows, FlashAttentionPlan& plan) const;
  device::AttentionParams params_of(const RunArgs& args) const;
  // Of the parts that kernels with these parameters leave.
  device::MergeParams merge_params_of(const FlashAttentionPlan& plan,
                                      const device::AttentionParams& params) const;
  device::WriteKvParams params_of(const WriteKvArgs& args) const;
  device::RopeWriteKvParams params_of(const WriteKvArgs& args, const RopeArgs& rope) const;
  // Before anything is written.
  void check_indices(const WriteKvArgs& args, cuda::Stream stream) const;

  AttentionSpec spec_;
  CudaGpu& gpu_;
  static constexpr size_t kNumTiles = flash_attention::kNumTiles;
  std::array<flash_attention::KernelChoice, kNumTiles> choices_;
  std::array<gpu::Machine, kNumTiles> tiles_;
  mutable std::array<LazyKernel, kNumTiles> attention_;  // as choices_
  mutable LazyKernel merge_rows_, write_kv_, rope_write_kv_;
};

}  // namespace rapt
