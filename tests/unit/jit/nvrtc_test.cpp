// The real compiler, where it is.
#include "jit/nvrtc.hpp"

#include <cstdlib>
#include <cstring>

#include "unit/jit/scratch.hpp"

namespace rapt::jit {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

#if HAS_TOOLKIT
// 32 floats of static shared memory, a parameter of 16 bytes, a lambda, a value of the key.
constexpr HeaderText kText[] = {
    {"sum/params.cuh",
     "#pragma once\nnamespace rapt::device { struct Params { float* x; int n; }; }\n"},
    {"sum/sum.cuh",
     "#pragma once\n#include \"sum/params.cuh\"\n#define GLOBAL __global__\n"
     "namespace rapt::device {\nstruct Bf16 { static constexpr int bytes = 2; };\n"
     "template <int kScale, class Element> __device__ void sum(const Params& p) {\n"
     "  __shared__ float part[32];\n"
     "  const auto twice = [&](float value) { return value * kScale * Element::bytes; };\n"
     "  part[threadIdx.x] = p.x[threadIdx.x];\n  __syncthreads();\n"
     "  p.x[threadIdx.x] = twice(part[31 - threadIdx.x]);\n}\n}\n"}};

KernelKey sum_key(const char* architecture) {
  return KernelKey("sum", parse_architecture(architecture))
      .number("scale", 3)
      .type("element", "Bf16");
}

KernelSource sum_source() {
  return {"sum/sum.cuh",
          "rapt_sum",
          "extern \"C\" GLOBAL void __launch_bounds__(32) rapt_sum(const __grid_constant__ Params "
          "params) { sum<key::scale, key::element>(params); }",
          {{"sizeof(Params)", 16}, {"key::scale", 3}},
          kText};
}

class NvrtcTest : public testing::Test {
 protected:
  const Nvrtc nvrtc_;
};

TEST_F(NvrtcTest, compiles_for_every_generation) {
  for (const char* architecture : {"80", "90a", "100a", "120a"}) {
    const CompiledKernel kernel =
        nvrtc_.compile(translation_unit(sum_key(architecture), sum_source()));
    // An ELF file of machine 190, CUDA, with the entry's name among its symbols.
    ASSERT_GT(kernel.image.size(), 1000u) << architecture;
    EXPECT_EQ(kernel.image.substr(0, 4),
              "\x7f"
              "ELF");
    uint16_t machine = 0;
    std::memcpy(&machine, kernel.image.data() + 18, sizeof(machine));
    EXPECT_EQ(machine, 190);
    EXPECT_THAT(kernel.image, HasSubstr(".text.rapt_sum"));
    EXPECT_EQ(kernel.resources.static_shared_bytes, 32 * 4) << architecture;
    EXPECT_GT(kernel.resources.num_registers, 4);
    EXPECT_THAT(kernel.resources.messages, IsEmpty());
    EXPECT_THAT(problems(kernel.resources), IsEmpty());
  }
}

TEST_F(NvrtcTest, the_same_text_gives_the_same_image) {
  const TranslationUnit unit = translation_unit(sum_key("90a"), sum_source());
  EXPECT_EQ(nvrtc_.compile(unit).image, nvrtc_.compile(unit).image);
  const KernelKey other = KernelKey("sum", {90, 'a'}).number("scale", 5).type("element", "Bf16");
  KernelSource source = sum_source();
  source.agreements.pop_back();
  EXPECT_NE(nvrtc_.compile(translation_unit(other, source)).image, nvrtc_.compile(unit).image);
}

TEST_F(NvrtcTest, an_error_carries_the_compilers_log) {
  KernelSource broken = sum_source();
  broken.entry = "extern \"C\" GLOBAL void rapt_sum() { undefined_thing = 1; }";
  const std::string text = error_of(
      ErrorCode::kInternal, [&] { nvrtc_.compile(translation_unit(sum_key("80"), broken)); });
  EXPECT_THAT(text, AllOf(HasSubstr("kernel sum sm_80 element=Bf16 scale=3 does not compile"),
                          HasSubstr("identifier \"undefined_thing\" is undefined"),
                          HasSubstr("kernel.cu(")));
}

TEST_F(NvrtcTest, where_host_and_device_disagree_nothing_compiles) {
  KernelSource other = sum_source();
  other.agreements[0].value = 24;
  EXPECT_THAT(error_of(ErrorCode::kInternal,
                       [&] { nvrtc_.compile(translation_unit(sum_key("80"), other)); }),
              HasSubstr("host and device disagree: the host has 24"));
}

TEST_F(NvrtcTest, spills_and_serialised_wgmma_are_seen) {
  KernelSource source = sum_source();
  source.function = "spill";
  source.entry =
      "extern \"C\" GLOBAL void __launch_bounds__(1024, 2) spill(float* p, int n) {\n"
      "  float a[96];\n"
      "#pragma unroll\n  for (int i = 0; i < 96; i++) a[i] = p[i * 1024 + threadIdx.x];\n"
      "  for (int j = 0; j < n; j++)\n"
      "#pragma unroll\n    for (int i = 0; i < 96; i++) a[i] = a[i] * a[(i * 7 + 3) % 96] + p[j];\n"
      "#pragma unroll\n  for (int i = 0; i < 96; i++) p[i * 1024 + threadIdx.x] = a[i];\n}";
  const CompiledKernel spilling = nvrtc_.compile(translation_unit(sum_key("80"), source));
  EXPECT_GT(spilling.resources.spill_store_bytes, 100);
  EXPECT_GT(spilling.resources.spill_load_bytes, 100);
  EXPECT_GE(spilling.resources.stack_bytes, 4);
  EXPECT_EQ(spilling.resources.num_registers, 32);  // 65536 / 2048 threads
  EXPECT_THAT(problems(spilling.resources), testing::ElementsAre(HasSubstr("spills: ")));
  source.entry =
      "extern \"C\" GLOBAL void spill(u64 a, u64 b, float* out) {\n"
      "  float d[4] = {0, 0, 0, 0};\n"
      "  for (int i = 0; i < 4; i++) {\n"
      "    asm volatile(\"wgmma.fence.sync.aligned;\");\n"
      "    asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, "
      "%5, 1, 1, 1, 0, 0;\" : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) : \"l\"(a), "
      "\"l\"(b));\n"
      "    d[0] *= 2;\n"
      "    asm volatile(\"wgmma.commit_group.sync.aligned;\");\n"
      "    asm volatile(\"wgmma.wait_group.sync.aligned 0;\");\n"
      "  }\n  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = d[i];\n}";
  source.entry.replace(source.entry.find("u64 a, u64 b"), 12,
                       "unsigned long long a, unsigned long long b");
  const CompiledKernel serial = nvrtc_.compile(translation_unit(sum_key("90a"), source));
  EXPECT_THAT(problems(serial.resources), testing::Contains(HasSubstr("serialized")));
}

TEST_F(NvrtcTest, an_architecture_it_does_not_know_is_unsupported) {
  const std::string text = error_of(ErrorCode::kUnsupported, [&] {
    nvrtc_.compile(translation_unit(sum_key("999"), sum_source()));
  });
  EXPECT_THAT(text, AllOf(HasSubstr("does not know sm_999"), HasSubstr("it knows sm_")));
}

TEST_F(NvrtcTest, what_it_made_comes_back_from_disk_and_pack) {
  const ScratchFolder scratch;
  StoreOptions options;
  options.cache_folder = scratch / "cache";
  KernelStore first(options), second(options);
  const auto built = first.get(sum_key("90a"), sum_source());
  EXPECT_EQ(first.counters().builds, 1);
  EXPECT_EQ(second.get(sum_key("90a"), sum_source())->image, built->image);
  EXPECT_EQ(second.counters().disk_hits, 1);
  PackWriter writer;
  writer.add(translation_unit(sum_key("90a"), sum_source()), *built);
  writer.write(scratch / "core.rpk");
  options.packs = {scratch / "core.rpk"};
  KernelStore third(options);
  EXPECT_EQ(third.get(sum_key("90a"), sum_source())->image, built->image);
  EXPECT_EQ(third.counters().pack_hits, 1);
}
#endif

TEST(NvrtcLibrary, a_missing_one_is_named_with_the_packages_that_bring_it) {
  EXPECT_THAT(error_of(ErrorCode::kMissingLibrary, [] { Nvrtc({"libnvrtc-gone.so.13"}); }),
              AllOf(HasSubstr("could not load libnvrtc-gone.so.13"),
                    HasSubstr("pip: nvidia-cuda-nvrtc"), HasSubstr("apt: cuda-nvrtc-13-0")));
  EXPECT_THAT(error_of(ErrorCode::kMissingLibrary, [] { Nvrtc({"libm.so.6"}); }),
              HasSubstr("libm.so.6 has no nvrtcGetErrorString"));
}

TEST(NvrtcLibrary, the_environment_may_name_another) {
  unsetenv("RAPT_NVRTC");
  EXPECT_EQ(Nvrtc::default_libraries().front(), "libnvrtc.so.13");
  setenv("RAPT_NVRTC", "/opt/libnvrtc.so.12", 1);
  EXPECT_THAT(Nvrtc::default_libraries(), testing::ElementsAre("/opt/libnvrtc.so.12"));
  unsetenv("RAPT_NVRTC");
}

}  // namespace
}  // namespace rapt::jit
