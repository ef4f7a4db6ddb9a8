// Works of more keys than one chain of fp32 sums may have.
#pragma once

#include <cstddef>

#include "backends/cpu/kernels.hpp"

namespace rapt::cpu {

// Runs a work whose is_folded() holds, one kernel call for each kMaxChainKeys of its keys.
// `fold`: the FoldLayout of its rows, 64-byte aligned.
void run_folded(Kernel kernel, const Problem& problem, const Request& request, const Work& work,
                const Partials& partials, std::byte* scratch, std::byte* fold);

}  // namespace rapt::cpu
