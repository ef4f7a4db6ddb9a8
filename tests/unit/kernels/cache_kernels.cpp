#include "cache_kernels.hpp"

#include "cache/write_kv.cuh"
#include "merge/merge.cuh"

namespace rapt::emulator {

void run_merge(Memory& memory, const Options& options, const device::MergeParams& params) {
  const auto blocks =
      static_cast<uint32_t>((params.num_rows + device::kMergeWarps - 1) / device::kMergeWarps);
  launch(memory, {{blocks}, 32 * device::kMergeWarps}, options,
         [&] { device::merge_rows<device::Bf16>(params); });
}

void run_write_kv(Memory& memory, const Options& options, const device::WriteKvParams& params) {
  launch(memory, {{static_cast<uint32_t>(params.num_tokens)}, device::kWriteKvThreads}, options,
         [&] { device::write_kv(params); });
}

}  // namespace rapt::emulator
