// The probe of this machine against what its kernel says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "device/cpu_isa.hpp"
#include "rapt/device.hpp"

namespace rapt {
namespace {

// The flags line of /proc/cpuinfo, with spaces around each flag. Linux leaves out what it does not
// enable.
std::string kernel_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("flags", 0) == 0) return " " + line.substr(line.find(':') + 1) + " ";
  return "";
}

bool has_all(const std::string& flags, const std::string& wanted) {
  std::istringstream words(wanted);
  for (std::string word; words >> word;)
    if (flags.find(" " + word + " ") == std::string::npos) return false;
  return true;
}

TEST(HostCpu, level_agrees_with_the_kernels_flags) {
  const std::string flags = kernel_flags();
  CpuIsa expected = CpuIsa::kBaseline;  // also of a processor that is not x86
  if (has_all(flags, "avx2 fma f16c bmi1 bmi2 abm movbe")) expected = CpuIsa::kAvx2;
  if (expected == CpuIsa::kAvx2 && has_all(flags, "avx512f avx512bw avx512cd avx512dq avx512vl"))
    expected = CpuIsa::kAvx512;
  if (expected == CpuIsa::kAvx512 && has_all(flags, "avx512_bf16")) expected = CpuIsa::kAvx512Bf16;
  if (expected == CpuIsa::kAvx512Bf16 && has_all(flags, "amx_tile amx_bf16"))
    expected = CpuIsa::kAmxBf16;
  EXPECT_EQ(isa_of(read_cpuid()), expected);
}

TEST(HostCpu, is_this_machine_and_always_the_same) {
  const DeviceInfo& device = host_cpu();
  EXPECT_EQ(device.name, "cpu");
  EXPECT_EQ(device.kind, DeviceKind::kCpu);
  EXPECT_GE(device.num_cores, 1);
  EXPECT_EQ(&device, &host_cpu());
  EXPECT_EQ(device_info("cpu").isa, device.isa);
  EXPECT_LE(device.isa, isa_of(read_cpuid()));
}

// sysfs says the same in another way, where a virtual machine shows it.
TEST(HostCpu, l2_size_agrees_with_sysfs) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index2/size");
  int64_t kib = 0;
  char unit = 0;
  ASSERT_GT(host_cpu().l2_bytes, 0);
  if (file >> kib >> unit && unit == 'K') {
    EXPECT_EQ(host_cpu().l2_bytes, kib * 1024);
  }
}

}  // namespace
}  // namespace rapt
