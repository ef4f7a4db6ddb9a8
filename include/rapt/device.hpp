// Devices as plain data. Selection and planning read these numbers and nothing else, so they can be
// asked about machines that are not here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/export.hpp"
#include "rapt/tensor.hpp"

namespace rapt {

// Instruction-set level of a CPU; each includes the ones before it.
enum class CpuIsa : uint8_t { kBaseline, kAvx2, kAvx512, kAvx512Bf16, kAmxBf16 };

// "baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16".
RAPT_API const char* to_string(CpuIsa isa);
RAPT_API std::optional<CpuIsa> parse_cpu_isa(std::string_view name);

struct DeviceInfo {
  std::string name;  // "cpu", "h100", "rtx4090", ...
  DeviceKind kind = DeviceKind::kCpu;

  // CPU
  CpuIsa isa = CpuIsa::kBaseline;
  int32_t num_cores = 1;  // logical processors
  // Data or unified caches: of a core, of a core, and the last-level one that a core shares.
  int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;

  // CUDA
  int32_t compute_capability = 0;  // 10 * major + minor: 90 for SM 9.0, 103 for SM 10.3
  int32_t num_sms = 0;
  int64_t shared_memory_bytes_per_block = 0;  // opt-in maximum of one thread block
  int64_t memory_bytes = 0;                   // nominal: "80 GB" is 80 GiB
  double memory_bandwidth = 0;                // bytes per second, as published
};

// The device of that name in Rapt's table (case-insensitive): "cpu" (this machine), "cpu-avx2",
// ..., "t4", "a100", "h100", "h200", "b200", "rtx5090", ..., or "smNN" for a nominal device of that
// compute capability (the figures of the table's first), and "emulated-smNN". Throws
// Error(kInvalidArgument) that lists the known names.
RAPT_API DeviceInfo device_info(std::string_view name);
// All names device_info() knows, in table order.
RAPT_API std::vector<std::string> known_device_names();
// This machine's processor: ISA from CPUID and XGETBV, lowered by the environment variable
// RAPT_CPU_ISA, which is read once; asking there for a level the processor lacks is
// Error(kInvalidArgument).
RAPT_API const DeviceInfo& host_cpu();

}  // namespace rapt
