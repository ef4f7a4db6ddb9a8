#include "device/cpu_isa.hpp"

#include <array>
#include <string>

#include "core/check.hpp"

namespace rapt {
namespace {

constexpr std::array kLevels = {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512,
                                CpuIsa::kAvx512Bf16, CpuIsa::kAmxBf16};

constexpr bool has(uint64_t word, uint64_t mask) {
  return (word & mask) == mask;
}
constexpr uint32_t bit(int number) {
  return uint32_t{1} << number;
}

// Intel SDM volume 2A, CPUID; volume 1, chapter 13 for the state components of XCR0.
constexpr uint32_t kLeaf1Ecx =
    bit(12) | bit(22) | bit(27) | bit(28) | bit(29);          // FMA, MOVBE,
                                                              // OSXSAVE, AVX, F16C
constexpr uint32_t kExtended1Ecx = bit(5);                    // LZCNT
constexpr uint32_t kLeaf7EbxAvx2 = bit(3) | bit(5) | bit(8);  // BMI1, AVX2, BMI2
constexpr uint32_t kLeaf7EbxAvx512 = bit(16) | bit(17) | bit(28) | bit(30) | bit(31);  // F, DQ, CD,
                                                                                       // BW, VL
constexpr uint32_t kLeaf71EaxAvx512Bf16 = bit(5);
constexpr uint32_t kLeaf7EdxAmx = bit(22) | bit(24);        // AMX-BF16, AMX-TILE
constexpr uint64_t kXcr0Avx = bit(1) | bit(2);              // SSE, AVX
constexpr uint64_t kXcr0Avx512 = bit(5) | bit(6) | bit(7);  // masks, high halves, registers 16-31
constexpr uint64_t kXcr0Amx = bit(17) | bit(18);            // tile configuration, tile data

std::string level_names() {
  std::string names;
  for (CpuIsa isa : kLevels) names += (names.empty() ? "" : ", ") + std::string(to_string(isa));
  return names;
}

}  // namespace

const char* to_string(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kBaseline:
      return "baseline";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Bf16:
      return "avx512_bf16";
    case CpuIsa::kAmxBf16:
      return "amx_bf16";
  }
  return "unknown";
}

std::optional<CpuIsa> parse_cpu_isa(std::string_view name) {
  for (CpuIsa isa : kLevels)
    if (name == to_string(isa)) return isa;
  return std::nullopt;
}

CpuIsa isa_of(const CpuidReport& report) {
  if (!has(report.leaf1.ecx, kLeaf1Ecx) || !has(report.extended1.ecx, kExtended1Ecx) ||
      !has(report.leaf7.ebx, kLeaf7EbxAvx2) || !has(report.xcr0, kXcr0Avx))
    return CpuIsa::kBaseline;
  if (!has(report.leaf7.ebx, kLeaf7EbxAvx512) || !has(report.xcr0, kXcr0Avx512))
    return CpuIsa::kAvx2;
  if (!has(report.leaf7_1.eax, kLeaf71EaxAvx512Bf16)) return CpuIsa::kAvx512;
  if (!has(report.leaf7.edx, kLeaf7EdxAmx) || !has(report.xcr0, kXcr0Amx))
    return CpuIsa::kAvx512Bf16;
  return CpuIsa::kAmxBf16;
}

CacheSizes caches_of(const CpuidReport& report) {
  constexpr uint32_t kInstruction = 2;
  CacheSizes sizes;
  for (const CpuidRegisters& cache : report.caches) {
    const uint32_t type = cache.eax & 0x1f, level = (cache.eax >> 5) & 7;
    if (type == kInstruction) continue;
    const int64_t line = (cache.ebx & 0xfff) + 1, partitions = ((cache.ebx >> 12) & 0x3ff) + 1;
    const int64_t ways = (cache.ebx >> 22) + 1, sets = static_cast<int64_t>(cache.ecx) + 1;
    const int64_t bytes = line * partitions * ways * sets;
    if (level == 1) sizes.l1_bytes = bytes;
    if (level == 2) sizes.l2_bytes = bytes;
    if (level == 3) sizes.l3_bytes = bytes;
  }
  return sizes;
}

CpuIsa lowered_isa(CpuIsa detected, std::optional<std::string_view> wanted) {
  if (!wanted || wanted->empty()) return detected;
  const std::optional<CpuIsa> isa = parse_cpu_isa(*wanted);
  check(isa.has_value(), "RAPT_CPU_ISA is \"", *wanted, "\": must be one of ", level_names());
  check(*isa <= detected, "RAPT_CPU_ISA is ", *wanted, ": this processor has ", to_string(detected),
        "; ask for that or a lower level");
  return *isa;
}

}  // namespace rapt
