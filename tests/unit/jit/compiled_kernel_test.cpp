// Logs as NVRTC 13.0 wrote them.
#include "jit/compiled_kernel.hpp"

#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kPlain[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
    "ptxas info    : Function properties for k\n"
    "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 12 registers, used 1 barriers, 144 bytes smem, 368 bytes cmem[0], 8 "
    "bytes "
    "cmem[2]\n"
    "ptxas info    : Compile time = 2.093 ms\n\n";

// 96 values a thread in 1024 threads twice an SM.
constexpr char kSpilling[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
    "ptxas info    : Function properties for k\n"
    "ptxas         .     536 bytes stack frame, 948 bytes spill stores, 1060 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 0 barriers, 536 bytes cumulative stack size, 364 "
    "bytes "
    "cmem[0]\n"
    "ptxas info    : Compile time = 46.076 ms\n";

// An accumulator touched before its wgmma is waited for.
constexpr char kSerialised[] =
    "ptxas info    : (C7519) warpgroup.arrive is injected in around line 41 by compiler to allow "
    "use "
    "of registers in GMMA in function 'k'\n"
    "ptxas info    : (C7517) warpgroup.wait is injected in around line 39 by compiler to allow use "
    "of "
    "registers defined by GMMA in function 'k'\n"
    "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized "
    "due to insufficient register resources for the wgmma pipeline in the function 'k'\n"
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
    "ptxas info    : Function properties for k\n"
    "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 30 registers, used 0 barriers\n"
    "ptxas info    : Compile time = 19.663 ms\n";

TEST(PtxasLog, a_clean_kernel_has_its_numbers_and_no_problem) {
  const Resources resources = parse_ptxas(kPlain);
  EXPECT_EQ(resources.num_registers, 12);
  EXPECT_EQ(resources.static_shared_bytes, 144);
  EXPECT_EQ(resources.stack_bytes, 0);
  EXPECT_EQ(resources.spill_store_bytes, 0);
  EXPECT_EQ(resources.spill_load_bytes, 0);
  EXPECT_THAT(resources.messages, IsEmpty());
  EXPECT_THAT(problems(resources), IsEmpty());
}

TEST(PtxasLog, spills_are_a_problem) {
  const Resources resources = parse_ptxas(kSpilling);
  EXPECT_EQ(resources.num_registers, 32);
  EXPECT_EQ(resources.stack_bytes, 536);
  EXPECT_EQ(resources.spill_store_bytes, 948);
  EXPECT_EQ(resources.spill_load_bytes, 1060);
  EXPECT_THAT(problems(resources), ElementsAre("spills: 948 bytes stored, 1060 bytes loaded"));
}

TEST(PtxasLog, serialised_wgmma_is_a_problem_and_other_remarks_are_kept) {
  const Resources resources = parse_ptxas(kSerialised);
  EXPECT_EQ(resources.num_registers, 30);
  EXPECT_THAT(resources.messages, ElementsAre(HasSubstr("(C7519) warpgroup.arrive is injected"),
                                              HasSubstr("(C7517) warpgroup.wait is injected"),
                                              HasSubstr("(C7511) Potential Performance Loss")));
  EXPECT_THAT(problems(resources), ElementsAre(HasSubstr("(C7517)"), HasSubstr("(C7511)")));
  for (const char* code : {"C7510", "C7512"})
    EXPECT_THAT(problems(parse_ptxas(concat("ptxas info    : (", code, ") wgmma ...\n"))),
                ElementsAre(concat("(", code, ") wgmma ...")));
}

TEST(PtxasLog, several_functions_add_up_and_oddities_are_survived) {
  const Resources both = parse_ptxas(concat(kSpilling, kPlain));
  EXPECT_EQ(both.num_registers, 32);
  EXPECT_EQ(both.static_shared_bytes, 144);
  EXPECT_EQ(both.spill_store_bytes, 948);
  EXPECT_EQ(parse_ptxas(""), Resources());
  EXPECT_EQ(parse_ptxas("\n\nkernel.cu(1): warning #177-D: unused"), Resources());
  EXPECT_EQ(parse_ptxas("ptxas info : Used registers").num_registers, 0);
  EXPECT_EQ(parse_ptxas(std::string("ptxas info : Used 5 registers\r")).num_registers, 5);
  EXPECT_THAT(parse_ptxas("ptxas warning : Something odd").messages, ElementsAre("Something odd"));
}

TEST(Resources, survive_being_written_and_a_cut_is_seen) {
  for (const char* log : {kPlain, kSpilling, kSerialised}) {
    const Resources resources = parse_ptxas(log);
    ByteWriter bytes;
    write(bytes, resources);
    ByteReader whole(bytes.written());
    EXPECT_EQ(read_resources(whole), resources);
    EXPECT_TRUE(whole.ended());
    for (size_t length = 0; length < bytes.written().size(); length++) {
      ByteReader cut(std::string_view(bytes.written()).substr(0, length));
      read_resources(cut);
      EXPECT_FALSE(cut.ok()) << length;
    }
  }
}

}  // namespace
}  // namespace rapt::jit
