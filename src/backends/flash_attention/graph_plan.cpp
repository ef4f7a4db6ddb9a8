// Plans of graph envelopes: what plan_work() makes of a batch, where the envelope's largest fits.
#include <algorithm>
#include <optional>
#include <vector>

#include "backends/flash_attention/flash_attention_backend.hpp"
#include "backends/flash_attention/page_ids.hpp"
#include "core/check.hpp"
#include "core/strides.hpp"

namespace rapt {
namespace {

// The arrays of a GraphMemory, the works of each tile before the first of these; page ids last,
// since they have the most room.
constexpr size_t kRequests = flash_attention::kNumTiles, kMerges = kRequests + 1,
                 kPageIds = kMerges + 1, kNumArrays = kPageIds + 1;

template <typename T>
size_t bytes_of(int64_t count) {
  return static_cast<size_t>(checked_mul(count, sizeof(T), "graph envelope: bytes of a plan"));
}

// A copy that became part of a graph would be done at each of its launches.
void check_uncaptured(const cuda::Context& context, cuda::Stream stream) {
  cuda::check_stream(context, stream);
  check(!cuda::capture_of(context.driver(), stream).active(),
        "the stream is being captured: a graph envelope is planned and replanned outside of it, "
        "only runs are captured");
}

template <typename T>
size_t stage(const std::vector<T>& values, T* to) {
  std::copy(values.begin(), values.end(), to);
  return values.size() * sizeof(T);
}

}  // namespace

void FlashAttentionBackend::plan_envelope(BackendPlan& backend_plan, void* stream_handle) const {
  auto& plan = static_cast<FlashAttentionPlan&>(backend_plan);
  const GraphEnvelope& envelope = *plan.envelope;
  plan.bounds = gpu::bounds_of(envelope, spec_, tiles_);
  const cuda::CurrentContext current(gpu_.context());
  const cuda::Stream stream = stream_of(stream_handle);
  check_uncaptured(gpu_.context(), stream);

  const bool stages_ids = spec_.is_paged() && !envelope.page_table.has_value();
  std::array<size_t, kNumArrays> capacities{};
  for (size_t i = 0; i < kNumTiles; i++)
    capacities[i] = bytes_of<device::AttentionWork>(plan.bounds.num_works[i]);
  plan.checks_page_ids = envelope.page_table.has_value() && gpu_.checks_indices();
  if (plan.checks_page_ids)
    capacities[kRequests] = bytes_of<device::AttentionRequest>(envelope.max_requests);
  capacities[kMerges] = bytes_of<device::MergeWork>(plan.bounds.num_merges);
  if (stages_ids)
    capacities[kPageIds] =
        bytes_of<int>(envelope.max_requests * ceil_div(envelope.max_kv_len, spec_.page_size));
  const auto& memory = plan.graph_memory.emplace(gpu_.context(), capacities, stream);

  plan.requests = memory.at<device::AttentionRequest>(kRequests);
  plan.page_ids =
      stages_ids ? memory.at<int>(kPageIds) : static_cast<const int*>(envelope.page_table.data);
  for (size_t i = 0; i < kNumTiles; i++)
    plan.launches[i] = launch_of(i, memory.at<device::AttentionWork>(i), plan.bounds.num_works[i]);
  set_merge(memory.at<device::MergeWork>(kMerges), plan.bounds.num_merges,
            envelope.query_len_bound() * spec_.group(), plan.bounds.num_partial_rows, plan);
}

void FlashAttentionBackend::plan_within(const Batch& batch, BackendPlan& backend_plan,
                                        void* stream_handle) const {
  auto& plan = static_cast<FlashAttentionPlan&>(backend_plan);
  const TensorView& table = plan.envelope->page_table;
  const cuda::CurrentContext current(gpu_.context());
  const cuda::Stream stream = stream_of(stream_handle);
  check_uncaptured(gpu_.context(), stream);
  flash_attention::GraphMemory& memory = *plan.graph_memory;
  memory.open();

  gpu::WorkList& list = plan.list;
  gpu::plan_work(batch, spec_, {plan.bounds.tiles.data(), kNumTiles},
                 table.has_value() ? std::optional(stride_of(table, 0)) : std::nullopt, list);
  std::array<size_t, kNumArrays> bytes{};
  for (size_t i = 0; i < kNumTiles; i++) {
    if (list.num_works[i] > plan.bounds.num_works[i])
      fail(ErrorCode::kInternal, list.num_works[i], " works of tile ", i, " in a graph envelope's ",
           plan.bounds.num_works[i]);
    gpu::write_works(list, plan.bounds.tiles, i, memory.staged<device::AttentionWork>(i));
    bytes[i] = bytes_of<device::AttentionWork>(list.num_works[i]);
  }
  if (std::ssize(list.merges) > plan.bounds.num_merges ||
      list.num_partial_rows > plan.bounds.num_partial_rows)
    fail(ErrorCode::kInternal, list.merges.size(), " merges of ", list.num_partial_rows,
         " partial rows in a graph envelope's ", plan.bounds.num_merges, " of ",
         plan.bounds.num_partial_rows);
  if (spec_.is_paged() && !table.has_value()) {
    flash_attention::stage_page_ids(batch, spec_.page_size, memory.staged<int>(kPageIds));
    bytes[kPageIds] = bytes_of<int>(flash_attention::num_page_ids(batch, spec_.page_size));
  }
  if (plan.checks_page_ids)
    bytes[kRequests] = stage(list.requests, memory.staged<device::AttentionRequest>(kRequests));
  bytes[kMerges] = stage(list.merges, memory.staged<device::MergeWork>(kMerges));
  memory.upload(bytes, stream);
}

}  // namespace rapt
