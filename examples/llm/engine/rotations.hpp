// The angles of a step's rotary embedding.
#pragma once

#include "llm/engine/step.hpp"
#include "llm/engine/thread_pool.hpp"
#include "llm/model/model.hpp"

namespace llm {

// Cosines and sines [T, head_dim / 2] of the angles that the step's tokens are turned by.
void find_rotations(const ModelConfig& config, const Step& step, ThreadPool& pool, float* cosines,
                    float* sines);

}  // namespace llm
