// NVIDIA's run-time compiler.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace llm::cuda {

// The cubin of a text that includes nothing, for 10 * major + minor of a compute capability. The
// library: the one RAPT_NVRTC names, as for Rapt itself, else version 13 or 12 where the loader or
// /usr/local/cuda has them. Throws rapt::Error(kMissingLibrary) where there is none, and
// rapt::Error(kUnsupported) with the compiler's words where it does not take the text.
std::string compile(std::string_view text, int32_t compute_capability);

}  // namespace llm::cuda
