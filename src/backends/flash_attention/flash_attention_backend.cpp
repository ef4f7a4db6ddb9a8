#include "backends/flash_attention/flash_attention_backend.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "backends/cuda/row_alignment.hpp"
#include "backends/flash_attention/kernel_texts.hpp"
#include "backends/flash_attention/page_ids.hpp"
#include "core/check.hpp"

namespace rapt {
namespace {

using flash_attention::PlanMemory;

// CUDA C++ Programming Guide, Technical Specifications.
constexpr int64_t kMaxGridX = std::numeric_limits<int32_t>::max(), kMaxGridY = 65535;

// Kernels copy 16 bytes at a time.
void check_rows(const char* name, const TensorView& tensor, int64_t alignment) {
  const int64_t its = row_alignment(tensor, alignment);
  if (its < alignment) [[unlikely]]
    fail(ErrorCode::kUnsupported, name, " is ", tensor.describe(), " at ", tensor.data,
         ": flash_attention needs every row at a multiple of ", alignment, " bytes, these are at ",
         its, ": pad its strides, or ask for another backend");
}

int window_bound(int64_t bound) {
  return static_cast<int>(std::min<int64_t>(bound, std::numeric_limits<int>::max()));
}

}  // namespace

FlashAttentionBackend::FlashAttentionBackend(const AttentionSpec& spec, CudaGpu& gpu)
    : spec_(spec), gpu_(gpu), choices_(flash_attention::choose_kernels(spec, gpu.info())) {
  for (size_t i = 0; i < choices_.size(); i++)
    tiles_[i] =
        gpu::machine_of(gpu.info(), choices_[i].blocks_per_sm, choices_[i].variant.tile_rows,
                        choices_[i].variant.tile_keys, choices_[i].variant.halves_blocks());
}

std::unique_ptr<BackendPlan> FlashAttentionBackend::make_plan() const {
  return std::make_unique<FlashAttentionPlan>(gpu_.context());
}

void FlashAttentionBackend::plan(const Batch& batch, BackendPlan& backend_plan) const {
  auto& plan = static_cast<FlashAttentionPlan&>(backend_plan);
  gpu::WorkList& list = plan.list;
  const TensorView& table = batch.page_table;
  const bool table_on_device = spec_.is_paged() && table.device.kind == DeviceKind::kCuda;
  gpu::plan_work(batch, spec_, tiles_,
                 table_on_device ? std::optional(stride_of(table, 0)) : std::nullopt, list);

  const bool stages_ids = spec_.is_paged() && !table_on_device;
  const auto id_bytes =
      stages_ids
          ? static_cast<size_t>(flash_attention::num_page_ids(batch, spec_.page_size)) * sizeof(int)
          : 0;
  plan.checks_page_ids = table_on_device && gpu_.checks_indices();
  const std::span<const device::AttentionRequest> requests(
      list.requests.data(), plan.checks_page_ids ? list.requests.size() : 0);
  const std::span<const device::MergeWork> merges(list.merges);
  const size_t works_bytes = list.pieces.size() * sizeof(device::AttentionWork);
  PlanMemory& memory = plan.memory;
  memory.reset(PlanMemory::room_for(id_bytes) + PlanMemory::room_for(requests.size_bytes()) +
               PlanMemory::room_for(works_bytes) + PlanMemory::room_for(merges.size_bytes()));
  const size_t page_ids = memory.take(id_bytes);
  if (stages_ids)
    flash_attention::stage_page_ids(batch, spec_.page_size,
                                    reinterpret_cast<int*>(memory.staged(page_ids)));
  plan.requests = memory.at<device::AttentionRequest>(memory.add(requests));
  size_t works = memory.take(works_bytes);
  const auto* first_merge = memory.at<device::MergeWork>(memory.add(merges));
  plan.page_ids = table_on_device ? static_cast<const int*>(table.data) : memory.at<int>(page_ids);
  for (size_t i = 0; i < choices_.size(); i++) {
    gpu::write_works(list, tiles_, i,
                     reinterpret_cast<device::AttentionWork*>(memory.staged(works)));
    plan.launches[i] = launch_of(i, memory.at<device::AttentionWork>(works), list.num_works[i]);
    works += list.num_works[i] * sizeof(device::AttentionWork);
  }
  int64_t max_rows = 1;
  for (const device::MergeWork& merge : merges)
    max_rows = std::max<int64_t>(max_rows, merge.row_end - merge.row_begin);
  set_merge(first_merge, std::ssize(merges), max_rows, list.num_partial_rows, plan);

  int64_t num_kernels = plan.merge.count > 0;
  const cuda::Kernel* any = plan.merge.kernel;
  for (const FlashAttentionPlan::TileLaunch& launch : plan.launches) {
    num_kernels += ceil_div(launch.count, kMaxGridY);
    if (launch.kernel) any = launch.kernel;
  }
  if (any) plan.chains.prepare(static_cast<size_t>(num_kernels), *any);
}

FlashAttentionPlan::TileLaunch FlashAttentionBackend::launch_of(size_t tile,
                                                                const device::AttentionWork* works,
                                                                int64_t count) const {
  FlashAttentionPlan::TileLaunch launch{
      .tile_rows = tiles_[tile].tile_rows, .works = works, .count = count};
  if (count > 0)
    launch.kernel = &attention_[tile].get(gpu_.kernels(), [&] {
      return flash_attention::attention_text(choices_[tile].variant, spec_.dtype,
                                             gpu_.architecture());
    });
  return launch;
}

void FlashAttentionBackend::set_merge(const device::MergeWork* works, int64_t num_works,
                                      int64_t max_rows, int64_t num_partial_rows,
                                      FlashAttentionPlan& plan) const {
  const int64_t blocks = ceil_div(
      std::min<int64_t>(max_rows, device::kMergeRows) * spec_.num_kv_heads, device::kMergeWarps);
  check(num_works <= kMaxGridX / blocks, num_works, " merges of ", blocks,
        " thread blocks each, at most 2^31 - 1 in all: plan fewer requests at a time");
  plan.merge = {
      .works = works, .count = num_works, .blocks_per_work = static_cast<int32_t>(blocks)};
  if (num_works > 0)
    plan.merge.kernel = &merge_rows_.get(gpu_.kernels(), [&] {
      return flash_attention::merge_rows_text(spec_.dtype, gpu_.architecture());
    });
  const int64_t out_bytes = checked_mul(
      num_partial_rows, spec_.dim_vo() * static_cast<int64_t>(sizeof(float)), "workspace");
  plan.partial_lse_offset = static_cast<size_t>(round_up(out_bytes, kWorkspaceAlignment));
  plan.shape.workspace_bytes =
      plan.partial_lse_offset + static_cast<size_t>(num_partial_rows) * sizeof(float);
}

device::AttentionParams FlashAttentionBackend::params_of(const RunArgs& args) const {
  const Window band = spec_.visible_band();
  const int32_t token_axis = spec_.is_paged() ? 1 : 0;
  device::AttentionParams params{};
  params.q = static_cast<const unsigned char*>(args.q.data);
  params.k = static_cast<const unsigned char*>(args.k.data);
  params.v = static_cast<const unsigned char*>(args.v.data);
  params.out = static_cast<unsigned char*>(args.out.data);
  params.q_token_stride = byte_stride(args.q, 0);
  params.q_head_stride = byte_stride(args.q, 1);
  params.k_page_stride = spec_.is_paged() ? byte_stride(args.k, 0) : 0;
  params.k_token_stride = byte_stride(args.k, token_axis);
  params.k_head_stride = byte_stride(args.k, token_axis + 1);
  params.v_page_stride = spec_.is_paged() ? byte_stride(args.v, 0) : 0;
  params.v_token_stride = byte_stride(args.v, token_axis);
  params.v_head_stride = byte_stride(args.v, token_axis + 1);
  params.out_token_stride = byte_stride(args.out, 0);
  params.out_head_stride = byte_stride(args.out, 1);
  if (spec_.needs_lse) {
    params.lse = static_cast<float*>(args.lse.data);
    params.lse_head_stride = stride_of(args.lse, 0);
    params.lse_token_stride = stride_of(args.lse, 1);
  }
  params.alibi_slopes = static_cast<const float*>(args.alibi_slopes.data);
  params.sinks = static_cast<const float*>(args.sinks.data);
  params.custom_mask = static_cast<const unsigned char*>(args.custom_mask.data);
  params.window_left = window_bound(band.left);
  params.window_right = window_bound(band.right);
  params.scale = spec_.resolved_scale();
  params.softcap = spec_.softcap;
  params.out_scale = 1;
  params.out_in_chunks = row_alignment(args.out, 16) == 16;
  return params;
}

void FlashAttentionBackend::run(const BackendPlan& backend_plan, const RunArgs& args) const {
  const auto& plan = static_cast<const FlashAttentionPlan&>(backend_plan);
  if (std::ranges::all_of(plan.launches, [](const auto& launch) { return launch.count == 0; }))
    return;
  check_rows("q", args.q, 16);
  check_rows("k", args.k, 16);
  check_rows("v", args.v, 16);
  check_rows("out", args.out, 4);
  const cuda::CurrentContext current(gpu_.context());
  const cuda::Stream stream = stream_of(args.stream);
  cuda::check_stream(gpu_.context(), stream);
  if (plan.checks_page_ids) gpu_.refuse_capture(stream);
  if (!plan.graph_memory) plan.memory.upload(stream);

  device::AttentionParams params = params_of(args);
  params.page_ids = plan.page_ids;
  if (plan.checks_page_ids)
    gpu_.check_page_ids({.requests = plan.requests,
                         .page_ids = params.page_ids,
                         .num_requests = static_cast<int>(plan.shape.num_requests),
                         .num_pages = static_cast<int>(plan.shape.num_pages),
                         .page_size = spec_.page_size},
                        stream);
  auto* workspace = static_cast<std::byte*>(args.workspace.data);
  if (plan.merge.count > 0) {
    params.partial_out = reinterpret_cast<float*>(workspace);
    params.partial_lse = reinterpret_cast<float*>(workspace + plan.partial_lse_offset);
  }
  const auto put_kernels = [&](const auto& put) {
    for (size_t i = 0; i < choices_.size(); i++) {
      const FlashAttentionPlan::TileLaunch& launch = plan.launches[i];
      const device::AttentionVariant& variant = choices_[i].variant;
      for (int64_t done = 0; done < launch.count; done += kMaxGridY) {
        params.works = launch.works + done;
        put(*launch.kernel,
            cuda::LaunchShape{
                .grid = {static_cast<uint32_t>(spec_.num_kv_heads),
                         static_cast<uint32_t>(std::min(kMaxGridY, launch.count - done))},
                .block = {static_cast<uint32_t>(variant.num_threads())},
                .shared_bytes = static_cast<uint32_t>(variant.shared_bytes())},
            params);
      }
    }
    if (plan.merge.count > 0)
      put(*plan.merge.kernel,
          cuda::LaunchShape{
              .grid = {static_cast<uint32_t>(plan.merge.count * plan.merge.blocks_per_work)},
              .block = {32 * device::kMergeWarps}},
          merge_params_of(plan, params));
  };
  if (const auto turn = plan.chains.take(stream)) {
    size_t index = 0;
    put_kernels(
        [&](const cuda::Kernel& kernel, const cuda::LaunchShape& shape, const auto& kernel_params) {
          turn.chain->set(index++, kernel, shape, kernel_params);
        });
    turn.chain->launch(stream);
  } else {
    put_kernels(
        [&](const cuda::Kernel& kernel, const cuda::LaunchShape& shape, const auto& kernel_params) {
          cuda::launch(kernel, shape, stream, kernel_params);
        });
  }
}

device::MergeParams FlashAttentionBackend::merge_params_of(
    const FlashAttentionPlan& plan, const device::AttentionParams& params) const {
  return {
      .works = plan.merge.works,
      .blocks_per_work = plan.merge.blocks_per_work,
      .group = spec_.group(),
      .num_kv_heads = spec_.num_kv_heads,
      .head_dim = spec_.dim_vo(),
      .partial_out = params.partial_out,
      .partial_lse = params.partial_lse,
      .sinks = spec_.sinks ? params.sinks : nullptr,
      .out = params.out,
      .lse = params.lse,
      .out_token_stride = params.out_token_stride,
      .out_head_stride = params.out_head_stride,
      .lse_head_stride = params.lse_head_stride,
      .lse_token_stride = params.lse_token_stride,
  };
}

device::WriteKvParams FlashAttentionBackend::params_of(const WriteKvArgs& args) const {
  const auto bytes = [](const TensorView& tensor) {
    return static_cast<unsigned char*>(tensor.data);
  };
  int64_t alignment = 16;
  for (const TensorView* tensor : {&args.k, &args.v, &args.cache.k, &args.cache.v})
    alignment = row_alignment(*tensor, alignment);
  const auto size = static_cast<int>(size_of(spec_.dtype));
  return {
      .slots = static_cast<const long long*>(args.slot_mapping.data),
      .num_tokens = static_cast<int>(args.slot_mapping.shape[0]),
      .num_heads = spec_.num_kv_heads,
      .k_bytes = spec_.head_dim_qk * size,
      .v_bytes = spec_.dim_vo() * size,
      .chunk_bytes = alignment == 16 ? 16 : 2,
      .page_size = spec_.page_size,
      .k = bytes(args.k),
      .v = bytes(args.v),
      .cache_k = bytes(args.cache.k),
      .cache_v = bytes(args.cache.v),
      .k_token_stride = byte_stride(args.k, 0),
      .k_head_stride = byte_stride(args.k, 1),
      .v_token_stride = byte_stride(args.v, 0),
      .v_head_stride = byte_stride(args.v, 1),
      .cache_k_page_stride = byte_stride(args.cache.k, 0),
      .cache_k_token_stride = byte_stride(args.cache.k, 1),
      .cache_k_head_stride = byte_stride(args.cache.k, 2),
      .cache_v_page_stride = byte_stride(args.cache.v, 0),
      .cache_v_token_stride = byte_stride(args.cache.v, 1),
      .cache_v_head_stride = byte_stride(args.cache.v, 2),
  };
}

device::RopeWriteKvParams FlashAttentionBackend::params_of(const WriteKvArgs& args,
                                                           const RopeArgs& rope) const {
  const auto rotary_dim = static_cast<int>(rope.cos_sin.shape[1]);
  device::RopeWriteKvParams params{};
  params.write = params_of(args);
  params.positions = rope.positions.data;
  params.position_bytes = static_cast<int>(size_of(rope.positions.dtype));
  params.rotary_dim = rotary_dim;
  params.interleaved = rope.style == RopeStyle::kInterleaved;
  params.num_query_heads = spec_.num_query_heads;
  params.cos_sin = static_cast<const float*>(rope.cos_sin.data);
  params.cos_sin_stride = stride_of(rope.cos_sin, 0);
  int64_t alignment = row_alignment(rope.cos_sin, 16);
  if (rope.q.has_value()) {
    params.q = static_cast<const unsigned char*>(rope.q.data);
    params.q_out = static_cast<unsigned char*>(rope.q_out.data);
    params.q_token_stride = byte_stride(rope.q, 0);
    params.q_head_stride = byte_stride(rope.q, 1);
    params.q_out_token_stride = byte_stride(rope.q_out, 0);
    params.q_out_head_stride = byte_stride(rope.q_out, 1);
    alignment = std::min(row_alignment(rope.q, alignment), row_alignment(rope.q_out, alignment));
  }
  if (alignment < 16 || rotary_dim % 16 != 0) params.write.chunk_bytes = 2;
  return params;
}

void FlashAttentionBackend::check_indices(const WriteKvArgs& args, cuda::Stream stream) const {
  gpu_.refuse_capture(stream);
  const int64_t num_slots = args.slot_mapping.shape[0];
  const auto* slots = static_cast<const long long*>(args.slot_mapping.data);
  gpu_.check_slots({.slots = slots,
                    .num_slots = num_slots,
                    .end = checked_mul(args.cache.k.shape[0], spec_.page_size, "cache slots")},
                   stream);
  if (!args.rope) return;
  const RopeArgs& rope = *args.rope;
  gpu_.check_positions({.positions = rope.positions.data,
                        .slots = rope.q.has_value() ? nullptr : slots,
                        .num_positions = num_slots,
                        .end = rope.cos_sin.shape[0],
                        .position_bytes = static_cast<int>(size_of(rope.positions.dtype))},
                       stream);
}

void FlashAttentionBackend::write_kv(const WriteKvArgs& args) const {
  const int64_t num_tokens = args.slot_mapping.shape[0];
  check(num_tokens <= std::numeric_limits<int>::max(), "slot_mapping has ", num_tokens,
        " entries, at most 2^31 - 1 on a GPU");
  if (num_tokens == 0) return;
  const cuda::LaunchShape shape{.grid = {static_cast<uint32_t>(num_tokens)},
                                .block = {device::kWriteKvThreads}};
  const cuda::Kernel& kernel =
      args.rope ? rope_write_kv_.get(gpu_.kernels(),
                                     [&] {
                                       return flash_attention::rope_write_kv_text(
                                           spec_.dtype, gpu_.architecture());
                                     })
                : write_kv_.get(gpu_.kernels(), [&] {
                    return flash_attention::write_kv_text(gpu_.architecture());
                  });
  const cuda::CurrentContext current(gpu_.context());
  const cuda::Stream stream = stream_of(args.stream);
  cuda::check_stream(gpu_.context(), stream);
  if (gpu_.checks_indices()) check_indices(args, stream);
  if (args.rope)
    cuda::launch(kernel, shape, stream, params_of(args, *args.rope));
  else
    cuda::launch(kernel, shape, stream, params_of(args));
}

std::unique_ptr<AttentionBackend> make_flash_attention_backend(const AttentionSpec& spec,
                                                               Gpu& gpu) {
  // Gpus of a build with this backend are.
  return std::make_unique<FlashAttentionBackend>(spec, static_cast<CudaGpu&>(gpu));
}

}  // namespace rapt
