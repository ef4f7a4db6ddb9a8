// Page ids that a plan takes along, of a table on the host.
#pragma once

#include <cstdint>

#include "rapt/batch.hpp"

namespace rapt::flash_attention {

// Those that the lengths make a step read.
int64_t num_page_ids(const Batch& batch, int32_t page_size);

// Copies them, request after request, to where the device gets them.
void stage_page_ids(const Batch& batch, int32_t page_size, int* staged);

}  // namespace rapt::flash_attention
