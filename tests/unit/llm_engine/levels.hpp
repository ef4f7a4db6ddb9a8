// The instruction sets that this machine can run, for tests that must hold on each.
#pragma once

#include <vector>

#include "rapt/device.hpp"

namespace llm::test {

inline std::vector<rapt::CpuIsa> levels() {
  std::vector<rapt::CpuIsa> all;
  for (const rapt::CpuIsa isa :
       {rapt::CpuIsa::kBaseline, rapt::CpuIsa::kAvx2, rapt::CpuIsa::kAvx512,
        rapt::CpuIsa::kAvx512Bf16, rapt::CpuIsa::kAmxBf16})
    if (isa <= rapt::host_cpu().isa) all.push_back(isa);
  return all;
}

// Reproducible values in (-1, 1), none of them zero.
inline std::vector<float> noise(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = (static_cast<float>(seed >> 9) + 0.5f) / 0x1p22f - 1;
  }
  return values;
}

}  // namespace llm::test
