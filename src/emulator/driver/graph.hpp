// Graphs: what is put on a captured stream is kept in order, and done at each launch of the graph.
#pragma once

#include <functional>

#include "launch/driver_abi.hpp"

namespace rapt::emulator {

using Work = std::function<void()>;

// Whether this thread's default stream is captured, and `stream` is that one.
bool is_captured(cuda::StreamHandle stream);

// Does the work, or keeps it for the graph where the stream is captured: what it refers to must
// then live as long.
void do_or_keep(cuda::StreamHandle stream, Work work);

}  // namespace rapt::emulator
