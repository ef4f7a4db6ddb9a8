#include "backends/cpu/cpu_backend.hpp"

#include <algorithm>
#include <atomic>

#include "backends/cpu/fold.hpp"
#include "backends/cpu/merge.hpp"
#include "cache/write_kv.hpp"
#include "core/check.hpp"
#include "core/strides.hpp"

namespace rapt {
namespace {

using cpu::Problem;
using cpu::Request;
using cpu::Work;

struct CpuPlan final : BackendPlan {
  std::vector<Request> requests;
  cpu::WorkList list;

  std::string describe() const override {
    int64_t decode = 0;
    for (const Work& work : list.works) decode += work.phase == cpu::Phase::kDecode;
    return concat("cpu: ", requests.size(), " requests, ", shape.num_tokens, " tokens: ", decode,
                  " decode and ", static_cast<int64_t>(list.works.size()) - decode,
                  " prefill works in ", list.num_ranges(), " ranges for ", list.num_slots,
                  " threads, ", list.merges.size(), " splits merged from ", list.num_partial_rows,
                  " partial rows, workspace ", list.workspace_bytes, " bytes");
  }
};

Problem rules_of(const AttentionSpec& spec) {
  const Window band = spec.visible_band();
  Problem problem{};
  problem.dtype = spec.dtype;
  problem.num_query_heads = spec.num_query_heads;
  problem.num_kv_heads = spec.num_kv_heads;
  problem.group = spec.group();
  problem.head_dim_qk = spec.head_dim_qk;
  problem.head_dim_vo = spec.dim_vo();
  problem.page_size = spec.page_size;
  problem.scale = spec.resolved_scale();
  problem.softcap = spec.softcap;
  problem.window_left = band.left;
  problem.window_right = band.right;
  problem.scales_per_head = spec.kv_scales == KvScales::kPerHead;
  return problem;
}

// Calls body(i) for i in [0, count) on up to num_slots threads. Slots, not threads, own scratch: a
// caller's parallel_for may run our tasks on fewer threads, or all on one.
template <typename Body>
void for_each_range(const ParallelFor& parallel_for, int32_t num_slots, int32_t count,
                    const Body& body) {
  if (num_slots <= 1 || count <= 1) {
    for (int32_t i = 0; i < count; i++) body(i, 0);
    return;
  }
  std::atomic<int32_t> next{0};
  auto work = [&](int32_t slot) {
    for (int32_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(i, slot);
  };
  // By reference, so that making the std::function allocates nothing.
  parallel_for(num_slots, std::ref(work));
}

}  // namespace

CpuBackend::CpuBackend(const AttentionSpec& spec, const BackendEnvironment& environment)
    : spec_(spec),
      parallel_for_(environment.parallel_for),
      kernels_(cpu::kernels(environment.device.isa)),
      rules_(rules_of(spec)),
      machine_(cpu::machine_of(environment.device, spec)) {
  machine_.num_threads = environment.num_threads;
  machine_.max_decode_rows = kernels_.max_decode_rows;
  machine_.max_prefill_rows = kernels_.max_prefill_rows;
  machine_.prefill_scratch_bytes = kernels_.prefill_scratch_bytes(rules_);
  machine_.decode_scratch_bytes = kernels_.decode_scratch_bytes(rules_);
}

std::unique_ptr<BackendPlan> CpuBackend::make_plan() const {
  return std::make_unique<CpuPlan>();
}

void CpuBackend::plan(const Batch& batch, BackendPlan& plan) const {
  auto& cpu_plan = static_cast<CpuPlan&>(plan);
  const TensorView& table = batch.page_table;
  const int64_t row_stride = table.rank == 2 && table.shape[0] > 1 ? table.stride[0] : 0;
  const auto* pages = static_cast<const int32_t*>(table.data);
  cpu_plan.requests.resize(static_cast<size_t>(batch.num_requests()));
  int64_t mask_bit = 0;
  for (int64_t b = 0; b < batch.num_requests(); b++) {
    // Written in place: what is built and copied waits for its own stores.
    Request& request = cpu_plan.requests[b];
    request.query_start = batch.query_start[b];
    request.query_len = static_cast<int32_t>(batch.query_len(b));
    request.kv_len = batch.kv_len[b];
    request.pages = spec_.is_paged() ? pages + b * row_stride : nullptr;
    request.kv_start = spec_.is_paged() ? 0 : batch.kv_start[b];
    request.mask_bit = mask_bit;
    mask_bit += batch.query_len(b) * batch.kv_len[b];
  }
  cpu::plan_work(batch, spec_, machine_, cpu_plan.list);
  cpu_plan.shape.workspace_bytes = cpu_plan.list.workspace_bytes;
}

Problem CpuBackend::problem_of(const RunArgs& args) const {
  auto floats = [](const TensorView& tensor) { return static_cast<float*>(tensor.data); };
  Problem problem = rules_;
  problem.q = static_cast<const std::byte*>(args.q.data);
  problem.k = static_cast<const std::byte*>(args.k.data);
  problem.v = static_cast<const std::byte*>(args.v.data);
  problem.out = static_cast<std::byte*>(args.out.data);
  problem.q_token_stride = byte_stride(args.q, 0);
  problem.q_head_stride = byte_stride(args.q, 1);
  const int32_t token_axis = spec_.is_paged() ? 1 : 0;
  problem.k_page_stride = spec_.is_paged() ? byte_stride(args.k, 0) : 0;
  problem.k_token_stride = byte_stride(args.k, token_axis);
  problem.k_head_stride = byte_stride(args.k, token_axis + 1);
  problem.v_page_stride = spec_.is_paged() ? byte_stride(args.v, 0) : 0;
  problem.v_token_stride = byte_stride(args.v, token_axis);
  problem.v_head_stride = byte_stride(args.v, token_axis + 1);
  problem.out_token_stride = byte_stride(args.out, 0);
  problem.out_head_stride = byte_stride(args.out, 1);
  if (spec_.needs_lse) {
    problem.lse = floats(args.lse);
    problem.lse_head_stride = byte_stride(args.lse, 0);
    problem.lse_token_stride = byte_stride(args.lse, 1);
  }
  if (spec_.alibi) problem.alibi_slopes = floats(args.alibi_slopes);
  if (spec_.sinks) problem.sinks = floats(args.sinks);
  if (spec_.custom_mask) problem.custom_mask = static_cast<const uint8_t*>(args.custom_mask.data);
  if (spec_.kv_scales != KvScales::kNone) {
    problem.k_scale = floats(args.k_scale);
    problem.v_scale = floats(args.v_scale);
  }
  return problem;
}

void CpuBackend::run(const BackendPlan& plan, const RunArgs& args) const {
  const auto& cpu_plan = static_cast<const CpuPlan&>(plan);
  const cpu::WorkList& list = cpu_plan.list;
  const Problem problem = problem_of(args);
  auto* workspace = static_cast<std::byte*>(args.workspace.data);
  const cpu::Partials partials{
      .out = reinterpret_cast<float*>(workspace + list.partial_out_offset),
      .lse = reinterpret_cast<float*>(workspace + list.partial_lse_offset),
      .out_stride = list.partial_stride,
  };
  for_each_range(parallel_for_, list.num_slots, list.num_ranges(), [&](int32_t i, int32_t slot) {
    std::byte* scratch = workspace + static_cast<size_t>(slot) * list.scratch_stride;
    for (int32_t w = list.ranges[i]; w < list.ranges[i + 1]; w++) {
      const Work& work = list.works[w];
      const auto kernel = work.phase == cpu::Phase::kDecode ? kernels_.decode : kernels_.prefill;
      const Request& request = cpu_plan.requests[work.request];
      if (work.is_folded())
        cpu::run_folded(kernel, problem, request, work, partials, scratch,
                        scratch + list.fold_offset);
      else
        kernel(problem, request, work, partials, scratch);
    }
  });
  if (list.merges.empty()) return;
  // Rows enough for a range to be worth a thread.
  constexpr int64_t kRowsPerRange = 8;
  const auto num_ranges = static_cast<int32_t>(ceil_div(list.num_merged_rows, kRowsPerRange));
  for_each_range(parallel_for_, list.num_slots, num_ranges, [&](int32_t i, int32_t) {
    cpu::merge_partials(problem, cpu_plan.requests.data(), list.merges, partials, i * kRowsPerRange,
                        std::min(list.num_merged_rows, (i + 1) * kRowsPerRange));
  });
}

void CpuBackend::write_kv(const WriteKvArgs& args) const {
  rapt::write_kv(args, parallel_for_, machine_.num_threads);
}

}  // namespace rapt
