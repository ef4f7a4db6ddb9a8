#include "cache_kernels.hpp"

#include "cache/check_indices.cuh"
#include "cache/rope_write_kv.cuh"
#include "cache/write_kv.cuh"
#include "merge/merge.cuh"

namespace rapt::emulator {

void run_merge(Memory& memory, const Options& options, size_t num_works,
               const device::MergeParams& params) {
  const auto blocks = static_cast<uint32_t>(num_works) * params.blocks_per_work;
  launch(memory, {{blocks}, 32 * device::kMergeWarps}, options,
         [&] { device::merge_rows<device::Bf16>(params); });
}

void run_check_page_ids(Memory& memory, const Options& options,
                        const device::CheckPageIdsParams& params) {
  const auto blocks =
      static_cast<uint32_t>((params.num_requests + device::kCheckWarps - 1) / device::kCheckWarps);
  launch(memory, {{blocks}, 32 * device::kCheckWarps}, options,
         [&] { device::check_page_ids(params); });
}

namespace {

// A block has kCheckWarps shares.
uint32_t check_blocks(long long num_indices) {
  constexpr long long kPerBlock = device::kCheckWarps * device::kCheckedSlots;
  return static_cast<uint32_t>((num_indices + kPerBlock - 1) / kPerBlock);
}

}  // namespace

void run_check_slots(Memory& memory, const Options& options,
                     const device::CheckSlotsParams& params) {
  launch(memory, {{check_blocks(params.num_slots)}, 32 * device::kCheckWarps}, options,
         [&] { device::check_slots(params); });
}

void run_check_positions(Memory& memory, const Options& options,
                         const device::CheckPositionsParams& params) {
  launch(memory, {{check_blocks(params.num_positions)}, 32 * device::kCheckWarps}, options,
         [&] { device::check_positions(params); });
}

void run_rope_write_kv(Memory& memory, const Options& options, Element element,
                       const device::RopeWriteKvParams& params) {
  launch(memory, {{static_cast<uint32_t>(params.write.num_tokens)}, device::kWriteKvThreads},
         options, [&] {
           if (element == Element::kFloat16)
             device::rope_write_kv<device::F16>(params);
           else
             device::rope_write_kv<device::Bf16>(params);
         });
}

void run_write_kv(Memory& memory, const Options& options, const device::WriteKvParams& params) {
  launch(memory, {{static_cast<uint32_t>(params.num_tokens)}, device::kWriteKvThreads}, options,
         [&] { device::write_kv(params); });
}

}  // namespace rapt::emulator
