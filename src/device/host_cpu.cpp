#include <cstdlib>
#include <thread>

#include "device/cpu_isa.hpp"
#include "device/cpuid.hpp"
#include "rapt/device.hpp"

namespace rapt {
namespace {

DeviceInfo probe() {
  const CpuidReport report = read_cpuid();
  const CacheSizes caches = caches_of(report);
  const char* wanted = std::getenv("RAPT_CPU_ISA");
  DeviceInfo device;
  device.name = "cpu";
  device.kind = DeviceKind::kCpu;
  device.isa =
      lowered_isa(isa_of(report), wanted ? std::optional<std::string_view>(wanted) : std::nullopt);
  const unsigned threads = std::thread::hardware_concurrency();
  device.num_cores = threads ? static_cast<int32_t>(threads) : 1;
  device.l1_bytes = caches.l1_bytes;
  device.l2_bytes = caches.l2_bytes;
  device.l3_bytes = caches.l3_bytes;
  return device;
}

}  // namespace

const DeviceInfo& host_cpu() {
  // A probe that throws is made again, and throws again, at the next call.
  static const DeviceInfo device = probe();
  return device;
}

}  // namespace rapt
