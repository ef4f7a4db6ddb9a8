// What the processor says about itself, as plain registers, so that everything drawn from them can
// be tested with the registers of machines that are not here.
#pragma once

#include <cstdint>
#include <vector>

namespace rapt {

struct CpuidRegisters {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero on other architectures than x86-64, and where a leaf does not exist.
struct CpuidReport {
  CpuidRegisters leaf1, leaf7, leaf7_1, extended1;  // 1; 7.0; 7.1; 0x80000001
  uint64_t xcr0 = 0;                   // state components the OS saves; 0 without OSXSAVE
  std::vector<CpuidRegisters> caches;  // sub-leaves of 4 (Intel) or 0x8000001D (AMD)
};

CpuidReport read_cpuid();

}  // namespace rapt
