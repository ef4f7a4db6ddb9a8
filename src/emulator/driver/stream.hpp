// Streams: there are the default ones only, and what is put on them is done when the call returns.
#pragma once

#include <cstdint>

#include "launch/driver_abi.hpp"

namespace rapt::emulator {

constexpr uintptr_t kPerThreadStream = 2;  // CU_STREAM_PER_THREAD, the last of them

// Throws a Refusal unless it is a default stream: null, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD.
void require_stream(cuda::StreamHandle stream);

}  // namespace rapt::emulator
