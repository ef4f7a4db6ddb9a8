// Known devices. GPU figures are the makers' published ones; shared memory is the architecture's
// opt-in maximum of one thread block (CUDA C++ Programming Guide, "Technical Specifications per
// Compute Capability").
#include <algorithm>
#include <cctype>
#include <iterator>

#include "core/check.hpp"
#include "device/cpu_isa.hpp"
#include "rapt/device.hpp"

namespace rapt {
namespace {

constexpr int64_t kKiB = 1024, kGiB = int64_t{1} << 30;

// A server socket of each level's first generation, so that plans for it look like real ones.
struct CpuClass {
  const char* name;
  CpuIsa isa;
  int32_t num_cores;
  int64_t l1_kib, l2_kib, l3_kib;
};

constexpr CpuClass kCpuClasses[] = {
    {"cpu-baseline", CpuIsa::kBaseline, 8, 32, 256, 8 * 1024},
    {"cpu-avx2", CpuIsa::kAvx2, 16, 32, 512, 32 * 1024},
    {"cpu-avx512", CpuIsa::kAvx512, 24, 32, 1024, 36 * 1024},
    {"cpu-avx512-bf16", CpuIsa::kAvx512Bf16, 32, 32, 1024, 32 * 1024},
    {"cpu-amx-bf16", CpuIsa::kAmxBf16, 48, 48, 2048, 96 * 1024},
};

// The first row of a compute capability also stands for its nominal device "smNN".
struct Gpu {
  const char* name;
  int32_t compute_capability;
  int32_t num_sms;
  int32_t memory_gib;
  int32_t bandwidth_gb;  // 10^9 bytes per second
};

constexpr Gpu kGpus[] = {
    {"t4", 75, 40, 16, 320},
    {"rtx2080ti", 75, 68, 11, 616},
    {"a100", 80, 108, 80, 2039},  // SXM, 80 GB
    {"a100-40gb", 80, 108, 40, 1555},
    {"a30", 80, 56, 24, 933},
    {"a10", 86, 72, 24, 600},
    {"a40", 86, 84, 48, 696},
    {"a6000", 86, 84, 48, 768},
    {"rtx3090", 86, 82, 24, 936},
    {"l4", 89, 58, 24, 300},
    {"l40s", 89, 142, 48, 864},
    {"rtx4090", 89, 128, 24, 1008},
    {"rtx6000ada", 89, 142, 48, 960},
    {"h100", 90, 132, 80, 3350},  // SXM
    {"h100-pcie", 90, 114, 80, 2000},
    {"h100-nvl", 90, 132, 94, 3900},
    {"h200", 90, 132, 141, 4800},
    {"h20", 90, 78, 96, 4000},
    {"gh200", 90, 132, 96, 4000},  // HBM3
    {"b200", 100, 148, 180, 8000},
    {"gb200", 100, 152, 186, 8000},
    {"b300", 103, 148, 288, 8000},
    {"gb300", 103, 152, 288, 8000},
    {"rtx5090", 120, 170, 32, 1792},
    {"rtx5080", 120, 84, 16, 960},
    {"rtxpro6000", 120, 188, 96, 1792},  // workstation edition
    {"gb10", 121, 48, 128, 273},         // memory shared with the CPU
};

int64_t shared_memory_bytes_per_block(int32_t compute_capability) {
  switch (compute_capability) {
    case 75:
      return 64 * kKiB;
    case 80:
      return 163 * kKiB;
    case 86:
    case 89:
    case 120:
    case 121:
      return 99 * kKiB;
    default:  // 9.0, 10.x
      return 227 * kKiB;
  }
}

DeviceInfo as_device(const CpuClass& row) {
  DeviceInfo device;
  device.name = row.name;
  device.kind = DeviceKind::kCpu;
  device.isa = row.isa;
  device.num_cores = row.num_cores;
  device.l1_bytes = row.l1_kib * kKiB;
  device.l2_bytes = row.l2_kib * kKiB;
  device.l3_bytes = row.l3_kib * kKiB;
  return device;
}

DeviceInfo as_device(const Gpu& row, std::string name) {
  DeviceInfo device;
  device.name = std::move(name);
  device.kind = DeviceKind::kCuda;
  device.num_cores = 0;
  device.compute_capability = row.compute_capability;
  device.num_sms = row.num_sms;
  device.shared_memory_bytes_per_block = shared_memory_bytes_per_block(row.compute_capability);
  device.memory_bytes = row.memory_gib * kGiB;
  device.memory_bandwidth = row.bandwidth_gb * 1e9;
  return device;
}

std::string lower(std::string_view text) {
  std::string lowered(text);
  std::transform(lowered.begin(), lowered.end(), lowered.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lowered;
}

// Visits every device of the table except this machine until `visit` returns true.
template <typename Visit>
void for_each_device(const Visit& visit) {
  for (const CpuClass& row : kCpuClasses)
    if (visit(row.name, [&] { return as_device(row); })) return;
  for (const Gpu& row : kGpus)
    if (visit(row.name, [&] { return as_device(row, row.name); })) return;
  for (const char* prefix : {"sm", "emulated-sm"})
    for (const Gpu& row : kGpus) {
      if (&row != kGpus && row.compute_capability == (&row - 1)->compute_capability) continue;
      const std::string name = prefix + std::to_string(row.compute_capability);
      if (visit(name, [&] { return as_device(row, name); })) return;
    }
}

}  // namespace

DeviceInfo device_info(std::string_view name) {
  const std::string wanted = lower(name);
  if (wanted == "cpu") return host_cpu();
  std::optional<DeviceInfo> found;
  for_each_device([&](std::string_view candidate, const auto& make) {
    if (candidate == wanted) found = make();
    return found.has_value();
  });
  if (found) return *std::move(found);
  std::string names;
  for (const std::string& known : known_device_names())
    names += (names.empty() ? "" : ", ") + known;
  fail(ErrorCode::kInvalidArgument, "device is \"", name, "\": must be one of ", names);
}

std::vector<std::string> known_device_names() {
  std::vector<std::string> names = {"cpu"};
  for_each_device([&](std::string_view name, const auto&) {
    names.emplace_back(name);
    return false;
  });
  return names;
}

}  // namespace rapt
