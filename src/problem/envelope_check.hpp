// Whether a batch is one that a graph envelope's plan takes.
#pragma once

#include "rapt/graph_envelope.hpp"

namespace rapt {

// Throws Error(kInvalidArgument) with every number of the batch that is too large, beside its
// bound, or for a page table that is not the envelope's. Both are valid for one spec.
void check_within(const GraphEnvelope& envelope, const Batch& batch);

}  // namespace rapt
