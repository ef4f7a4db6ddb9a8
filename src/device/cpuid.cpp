#include "device/cpuid.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rapt {

#if defined(__x86_64__)
namespace {

constexpr uint32_t kOsxsave = 1u << 27;      // leaf 1, ecx
constexpr uint32_t kAmdTopology = 1u << 22;  // leaf 0x80000001, ecx: leaf 0x8000001D exists
constexpr uint32_t kMaxCacheLevels = 16;     // real processors list four or five
constexpr uint32_t kIntelCaches = 4, kAmdCaches = 0x8000001d;

CpuidRegisters leaf(uint32_t number, uint32_t sub_leaf = 0) {
  CpuidRegisters r;
  // Returns 0 and leaves r alone when the processor's highest leaf is lower.
  __get_cpuid_count(number, sub_leaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// By its encoding: the intrinsic would need this file compiled for processors that have XSAVE.
uint64_t read_xcr0() {
  uint32_t low, high;
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

}  // namespace

CpuidReport read_cpuid() {
  CpuidReport report;
  report.leaf1 = leaf(1);
  report.leaf7 = leaf(7);
  if (report.leaf7.eax >= 1) report.leaf7_1 = leaf(7, 1);  // eax: the highest sub-leaf
  report.extended1 = leaf(0x80000001);
  if (report.leaf1.ecx & kOsxsave) report.xcr0 = read_xcr0();
  const uint32_t number = report.extended1.ecx & kAmdTopology ? kAmdCaches : kIntelCaches;
  for (uint32_t sub_leaf = 0; sub_leaf < kMaxCacheLevels; sub_leaf++) {
    const CpuidRegisters cache = leaf(number, sub_leaf);
    if ((cache.eax & 0x1f) == 0) break;  // type 0: no more caches
    report.caches.push_back(cache);
  }
  return report;
}

#else

CpuidReport read_cpuid() {
  return {};
}

#endif

}  // namespace rapt
