// The kernels beside attention as tests see them.
#pragma once

#include "emulator/launch.hpp"
#include "kernels/abi/check_indices.hpp"
#include "kernels/abi/merge.hpp"
#include "kernels/abi/write_kv.hpp"

namespace rapt::emulator {

// Results in bf16.
void run_merge(Memory& memory, const Options& options, size_t num_works,
               const device::MergeParams& params);
enum class Element { kFloat32, kFloat16, kBFloat16 };
// Each in an object of its own (merge_states_kernel.cpp).
template <Element kFrom>
void run_merge_states_of(Memory& memory, const Options& options, Element to,
                         const device::MergeStatesParams& params);
inline void run_merge_states(Memory& memory, const Options& options, Element from, Element to,
                             const device::MergeStatesParams& params) {
  switch (from) {
    case Element::kFloat32:
      return run_merge_states_of<Element::kFloat32>(memory, options, to, params);
    case Element::kFloat16:
      return run_merge_states_of<Element::kFloat16>(memory, options, to, params);
    case Element::kBFloat16:
      return run_merge_states_of<Element::kBFloat16>(memory, options, to, params);
  }
}
void run_check_page_ids(Memory& memory, const Options& options,
                        const device::CheckPageIdsParams& params);
void run_check_slots(Memory& memory, const Options& options,
                     const device::CheckSlotsParams& params);
void run_check_positions(Memory& memory, const Options& options,
                         const device::CheckPositionsParams& params);
// 16-bit elements.
void run_rope_write_kv(Memory& memory, const Options& options, Element element,
                       const device::RopeWriteKvParams& params);
void run_write_kv(Memory& memory, const Options& options, const device::WriteKvParams& params);

}  // namespace rapt::emulator
