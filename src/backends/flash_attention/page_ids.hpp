// Page ids that a plan takes along, of a table on the host.
#pragma once

#include <span>

#include "kernels/abi/attention.hpp"
#include "rapt/batch.hpp"

namespace rapt::flash_attention {

// Those that the lengths make a step read.
int64_t num_page_ids(const Batch& batch, int32_t page_size);

// Copies them, request after request, to where the device gets them; the requests know where.
void stage_page_ids(const Batch& batch, int32_t page_size, int* staged,
                    std::span<device::AttentionRequest> requests);

}  // namespace rapt::flash_attention
