// Page ids and slots in device memory, looked at before kernels follow them.
#include "kernels/abi/check_indices.hpp"

#include <bit>
#include <vector>

#include "backends/cuda/cuda_gpu.hpp"
#include "core/check.hpp"
#include "kernels/abi/attention.hpp"
#include "launch/memory.hpp"

namespace rapt {
namespace {

using device::BadIndex;
using device::CheckPageIdsParams;
using device::CheckPositionsParams;
using device::CheckSlotsParams;

// What each of num_warps warps found. Waits for the stream.
template <typename Params>
std::vector<BadIndex> found_by(const cuda::Kernel& kernel, Params params, int64_t num_warps,
                               const cuda::Context& context, cuda::Stream stream) {
  std::vector<BadIndex> found(static_cast<size_t>(num_warps));
  const size_t bytes = found.size() * sizeof(BadIndex);
  // Of this call, since others may check on other streams.
  const cuda::DeviceBuffer on_device(context, bytes);
  params.found = std::bit_cast<BadIndex*>(on_device.address());
  cuda::launch(kernel,
               {.grid = {static_cast<uint32_t>(ceil_div(num_warps, device::kCheckWarps))},
                .block = {32 * device::kCheckWarps}},
               stream, params);
  cuda::copy_to_host(context.driver(), found.data(), on_device.address(), bytes, stream);
  cuda::synchronize(context.driver(), stream);
  return found;
}

}  // namespace

KernelText check_page_ids_text(jit::Architecture architecture) {
  return {jit::KernelKey("check_page_ids", architecture),
          {.header = "cache/check_indices.cuh",
           .function = "rapt_check_page_ids",
           .entry = "extern \"C\" GLOBAL void LAUNCH_BOUNDS(32 * kCheckWarps) "
                    "rapt_check_page_ids(GRID_CONSTANT const CheckPageIdsParams params) {\n"
                    "  check_page_ids(params);\n}",
           .agreements = {same_size<CheckPageIdsParams>("CheckPageIdsParams"),
                          same_size<BadIndex>("BadIndex"),
                          same_size<device::AttentionRequest>("AttentionRequest"),
                          {"kCheckWarps", device::kCheckWarps}}}};
}

KernelText check_slots_text(jit::Architecture architecture) {
  return {jit::KernelKey("check_slots", architecture),
          {.header = "cache/check_indices.cuh",
           .function = "rapt_check_slots",
           .entry = "extern \"C\" GLOBAL void LAUNCH_BOUNDS(32 * kCheckWarps) "
                    "rapt_check_slots(GRID_CONSTANT const CheckSlotsParams params) {\n"
                    "  check_slots(params);\n}",
           .agreements = {same_size<CheckSlotsParams>("CheckSlotsParams"),
                          same_size<BadIndex>("BadIndex"),
                          {"kCheckWarps", device::kCheckWarps},
                          {"kCheckedSlots", device::kCheckedSlots}}}};
}

KernelText check_positions_text(jit::Architecture architecture) {
  return {jit::KernelKey("check_positions", architecture),
          {.header = "cache/check_indices.cuh",
           .function = "rapt_check_positions",
           .entry = "extern \"C\" GLOBAL void LAUNCH_BOUNDS(32 * kCheckWarps) "
                    "rapt_check_positions(GRID_CONSTANT const CheckPositionsParams params) {\n"
                    "  check_positions(params);\n}",
           .agreements = {same_size<CheckPositionsParams>("CheckPositionsParams"),
                          same_size<BadIndex>("BadIndex"),
                          {"kCheckWarps", device::kCheckWarps},
                          {"kCheckedSlots", device::kCheckedSlots}}}};
}

void CudaGpu::refuse_capture(cuda::Stream stream) const {
  if (cuda::capture_of(driver(), stream).active())
    fail(ErrorCode::kUnsupported,
         "the stream is being captured, and check_device_indices waits for it: capture in a "
         "context without that option");
}

void CudaGpu::check_page_ids(const CheckPageIdsParams& params, cuda::Stream stream) {
  if (params.num_requests == 0) return;
  const cuda::CurrentContext current(context_);
  const cuda::Kernel& kernel =
      check_page_ids_.get(kernels_, [&] { return check_page_ids_text(architecture()); });
  const std::vector<BadIndex> found =
      found_by(kernel, params, params.num_requests, context_, stream);
  for (size_t b = 0; b < found.size(); b++)
    check(found[b].position < 0, "page_table[", b, ", ", found[b].position, "] is ", found[b].value,
          ", but num_pages is ", params.num_pages,
          ": must be from 0 to below that; write the table before the run, on its stream");
}

void CudaGpu::check_slots(const CheckSlotsParams& params, cuda::Stream stream) {
  if (params.num_slots == 0) return;
  const cuda::CurrentContext current(context_);
  const cuda::Kernel& kernel =
      check_slots_.get(kernels_, [&] { return check_slots_text(architecture()); });
  for (const BadIndex& bad :
       found_by(kernel, params, ceil_div(params.num_slots, int64_t{device::kCheckedSlots}),
                context_, stream))
    check(bad.position < 0, "slot_mapping[", bad.position, "] is ", bad.value,
          ": the cache has slots 0 to ", params.end - 1);
}

void CudaGpu::check_positions(const CheckPositionsParams& params, cuda::Stream stream) {
  if (params.num_positions == 0) return;
  const cuda::CurrentContext current(context_);
  const cuda::Kernel& kernel =
      check_positions_.get(kernels_, [&] { return check_positions_text(architecture()); });
  for (const BadIndex& bad :
       found_by(kernel, params, ceil_div(params.num_positions, int64_t{device::kCheckedSlots}),
                context_, stream))
    check(bad.position < 0, "rope.positions[", bad.position, "] is ", bad.value,
          ": cos_sin has rows 0 to ", params.end - 1);
}

}  // namespace rapt
