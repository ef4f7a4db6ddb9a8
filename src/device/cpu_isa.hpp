// Which instruction-set level a processor has: pure functions of its CPUID.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "device/cpuid.hpp"
#include "rapt/device.hpp"

namespace rapt {

// The highest level whose instructions the processor has and whose registers the OS saves.
//   avx2         x86-64-v3: AVX2, FMA, F16C, BMI1/2, LZCNT, MOVBE
//   avx512       x86-64-v4: and AVX-512 F, BW, CD, DQ, VL
//   avx512_bf16  and AVX512_BF16
//   amx_bf16     and AMX-TILE, AMX-BF16. Linux wants a permission (arch_prctl) before first use,
//                which is the user's business, not a property of the processor.
CpuIsa isa_of(const CpuidReport& report);

struct CacheSizes {
  int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // data or unified; 0 = not reported
};
CacheSizes caches_of(const CpuidReport& report);

// What RAPT_CPU_ISA makes of the processor's level: unset or empty keeps it, a lower level lowers
// it. Throws Error(kInvalidArgument) for an unknown name and for a level above `detected`.
CpuIsa lowered_isa(CpuIsa detected, std::optional<std::string_view> wanted);

}  // namespace rapt
