// From CPUID registers to a level, with the registers of machines that are not here.
#include "device/cpu_isa.hpp"

#include <gtest/gtest.h>

#include "core/check.hpp"

namespace rapt {
namespace {

constexpr CpuIsa kAll[] = {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16,
                           CpuIsa::kAmxBf16};

// Sapphire Rapids, all features and states on: leaves as the Intel SDM numbers their bits.
CpuidReport sapphire_rapids() {
  CpuidReport report;
  report.leaf1.ecx = 0x7ffefbff;      // bits 12, 22, 27, 28, 29 among them
  report.leaf7.ebx = 0xf3bfbfff;      // AVX2, BMI, AVX-512 F, DQ, CD, BW, VL
  report.leaf7.edx = 0xbfc14410;      // AMX-BF16 (22), AMX-TILE (24), AMX-INT8 (25)
  report.leaf7_1.eax = 0x00001c30;    // AVX-VNNI (4), AVX512_BF16 (5)
  report.extended1.ecx = 0x00000121;  // LZCNT (5)
  report.xcr0 = 0x602e7;
  return report;
}

TEST(CpuIsa, the_highest_complete_level_is_found) {
  EXPECT_EQ(isa_of({}), CpuIsa::kBaseline);
  EXPECT_EQ(isa_of(sapphire_rapids()), CpuIsa::kAmxBf16);
}

TEST(CpuIsa, each_missing_feature_lowers_the_level) {
  struct Case {
    uint32_t CpuidRegisters::*reg;
    CpuidRegisters CpuidReport::*leaf;
    int bit;
    CpuIsa level;
  };
  const Case cases[] = {
      {&CpuidRegisters::ecx, &CpuidReport::leaf1, 12, CpuIsa::kBaseline},     // FMA
      {&CpuidRegisters::ecx, &CpuidReport::leaf1, 27, CpuIsa::kBaseline},     // OSXSAVE
      {&CpuidRegisters::ecx, &CpuidReport::leaf1, 28, CpuIsa::kBaseline},     // AVX
      {&CpuidRegisters::ecx, &CpuidReport::leaf1, 29, CpuIsa::kBaseline},     // F16C
      {&CpuidRegisters::ecx, &CpuidReport::extended1, 5, CpuIsa::kBaseline},  // LZCNT
      {&CpuidRegisters::ebx, &CpuidReport::leaf7, 5, CpuIsa::kBaseline},      // AVX2
      {&CpuidRegisters::ebx, &CpuidReport::leaf7, 8, CpuIsa::kBaseline},      // BMI2
      {&CpuidRegisters::ebx, &CpuidReport::leaf7, 16, CpuIsa::kAvx2},         // AVX-512 F
      {&CpuidRegisters::ebx, &CpuidReport::leaf7, 17, CpuIsa::kAvx2},         // DQ
      {&CpuidRegisters::ebx, &CpuidReport::leaf7, 30, CpuIsa::kAvx2},         // BW
      {&CpuidRegisters::ebx, &CpuidReport::leaf7, 31, CpuIsa::kAvx2},         // VL
      {&CpuidRegisters::eax, &CpuidReport::leaf7_1, 5, CpuIsa::kAvx512},      // AVX512_BF16
      {&CpuidRegisters::edx, &CpuidReport::leaf7, 22, CpuIsa::kAvx512Bf16},   // AMX-BF16
      {&CpuidRegisters::edx, &CpuidReport::leaf7, 24, CpuIsa::kAvx512Bf16},   // AMX-TILE
  };
  for (const Case& c : cases) {
    CpuidReport report = sapphire_rapids();
    report.*c.leaf.*c.reg &= ~(uint32_t{1} << c.bit);
    EXPECT_EQ(isa_of(report), c.level) << "bit " << c.bit << ", " << to_string(c.level);
  }
}

// A feature counts only once the operating system saves its registers.
TEST(CpuIsa, states_the_os_does_not_save_lower_the_level) {
  const std::pair<uint64_t, CpuIsa> cases[] = {
      {0x602e7, CpuIsa::kAmxBf16},    {0x202e7, CpuIsa::kAvx512Bf16},  // no tile data
      {0x402e7, CpuIsa::kAvx512Bf16},                                  // no tile configuration
      {0x2e7, CpuIsa::kAvx512Bf16},   {0x67, CpuIsa::kAvx2},           // registers 16-31 missing
      {0x7, CpuIsa::kAvx2},           {0x3, CpuIsa::kBaseline},
      {0x602e3, CpuIsa::kBaseline},   {0, CpuIsa::kBaseline}};
  for (const auto& [xcr0, level] : cases) {
    CpuidReport report = sapphire_rapids();
    report.xcr0 = xcr0;
    EXPECT_EQ(isa_of(report), level) << std::hex << xcr0;
  }
}

TEST(CpuIsa, names_are_read_back) {
  for (CpuIsa isa : kAll) EXPECT_EQ(parse_cpu_isa(to_string(isa)), isa);
  EXPECT_FALSE(parse_cpu_isa("AVX2").has_value());
  EXPECT_FALSE(parse_cpu_isa("").has_value());
}

TEST(CpuIsa, an_override_lowers_and_never_raises) {
  for (CpuIsa detected : kAll) {
    EXPECT_EQ(lowered_isa(detected, std::nullopt), detected);
    EXPECT_EQ(lowered_isa(detected, ""), detected);
    for (CpuIsa wanted : kAll) {
      if (wanted <= detected) {
        EXPECT_EQ(lowered_isa(detected, to_string(wanted)), wanted);
        continue;
      }
      try {
        lowered_isa(detected, to_string(wanted));
        ADD_FAILURE() << to_string(wanted) << " on " << to_string(detected);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_EQ(error.what(),
                  concat("RAPT_CPU_ISA is ", to_string(wanted), ": this processor has ",
                         to_string(detected), "; ask for that or a lower level"));
      }
    }
  }
}

TEST(CpuIsa, an_unknown_override_lists_the_levels) {
  try {
    lowered_isa(CpuIsa::kAvx512, "sse9");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(),
                 "RAPT_CPU_ISA is \"sse9\": must be one of baseline, avx2, avx512, avx512_bf16, "
                 "amx_bf16");
  }
}

// Leaf 0x8000001D of a Zen 4 core: 32 KiB of data in 8 ways, the same of instructions, 1 MiB in 8
// ways, 32 MiB in 16 ways.
TEST(CpuIsa, cache_sizes_are_ways_partitions_lines_and_sets) {
  CpuidReport report;
  report.caches = {{0x00000121, 0x01c0003f, 63, 0},
                   {0x00000122, 0x01c0003f, 63, 0},
                   {0x00000143, 0x01c0003f, 2047, 0},
                   {0x0003c163, 0x03c0003f, 32767, 0}};
  const CacheSizes sizes = caches_of(report);
  EXPECT_EQ(sizes.l1_bytes, 32 * 1024);
  EXPECT_EQ(sizes.l2_bytes, 1024 * 1024);
  EXPECT_EQ(sizes.l3_bytes, 32 * 1024 * 1024);
}

TEST(CpuIsa, caches_that_are_not_reported_have_no_size) {
  const CacheSizes sizes = caches_of({});
  EXPECT_EQ(sizes.l1_bytes, 0);
  EXPECT_EQ(sizes.l3_bytes, 0);
}

}  // namespace
}  // namespace rapt
