// The kernels of generation 2 as jit/ is asked for them.
#pragma once

#include <vector>

#include "backends/cuda/kernel_text.hpp"
#include "kernels/abi/attention.hpp"
#include "rapt/device.hpp"
#include "rapt/spec.hpp"

namespace rapt::flash_attention {

// dtype: float16 or bfloat16.
KernelText attention_text(const device::AttentionVariant& variant, DType dtype,
                          jit::Architecture architecture);
// Merges the parts of rows whose keys were cut.
KernelText merge_rows_text(DType dtype, jit::Architecture architecture);
KernelText write_kv_text(jit::Architecture architecture);
KernelText rope_write_kv_text(DType dtype, jit::Architecture architecture);

// All that plans and runs of a spec that selection accepts may ask for on a device: what a pack
// must have for it.
std::vector<KernelText> texts_for(const AttentionSpec& spec, const DeviceInfo& device);

}  // namespace rapt::flash_attention
