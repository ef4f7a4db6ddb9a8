// Kernels of the backend through the real compiler, where there is one: host and device agree, and
// nothing spills.
#include "backends/flash_attention/kernel_texts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda/cuda_gpu.hpp"
#include "backends/flash_attention/kernel_choice.hpp"

namespace rapt::flash_attention {
namespace {

#if HAS_TOOLKIT
void expect_sound(const KernelText& text) {
  SCOPED_TRACE(text.key.text());
  static const jit::Nvrtc nvrtc;
  const jit::CompiledKernel kernel = nvrtc.compile(jit::translation_unit(text.key, text.source));
  EXPECT_THAT(jit::problems(kernel.resources), testing::IsEmpty());
  EXPECT_FALSE(kernel.image.empty());
}

struct Case {
  int32_t qk, vo;
  const char* device;
};

class KernelTexts : public testing::TestWithParam<Case> {};
// A few, for time's sake: the core pack has more of them and refuses those that spill.
INSTANTIATE_TEST_SUITE_P(HeadDims, KernelTexts,
                         testing::Values(Case{8, 8, "sm120"}, Case{64, 64, "sm90"},
                                         Case{96, 128, "sm120"}, Case{112, 112, "sm90"},
                                         Case{128, 128, "sm80"}, Case{192, 128, "sm80"},
                                         Case{256, 256, "sm90"}),
                         [](const auto& one) {
                           return std::string(one.param.device) + "_" +
                                  std::to_string(one.param.qk) + "_" + std::to_string(one.param.vo);
                         });

// With all options on one head dim or another.
TEST_P(KernelTexts, compile_without_spills) {
  const auto& [qk, vo, name] = GetParam();
  AttentionSpec spec;
  spec.num_query_heads = 12, spec.num_kv_heads = 4;
  spec.head_dim_qk = qk, spec.head_dim_vo = vo;
  spec.alibi = spec.sinks = spec.custom_mask = qk / 64 % 2 == 0;
  spec.softcap = spec.alibi ? 30 : 0;
  const DeviceInfo device = device_info(name);
  for (const KernelChoice& choice : choose_kernels(spec, device))
    expect_sound(attention_text(choice.variant, qk == 64 ? DType::kFloat16 : DType::kBFloat16,
                                architecture_for(device.compute_capability)));
}

TEST(KernelTextsBesideAttention, compile_without_spills) {
  for (const int32_t architecture : {80, 90}) {
    expect_sound(write_kv_text({architecture}));
    expect_sound(check_page_ids_text({architecture}));
    expect_sound(check_slots_text({architecture}));
    expect_sound(check_positions_text({architecture}));
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      expect_sound(merge_rows_text(dtype, {architecture}));
      expect_sound(rope_write_kv_text(dtype, {architecture}));
      expect_sound(merge_states_text(DType::kFloat32, dtype, {architecture}));
      expect_sound(merge_states_text(dtype, DType::kFloat32, {architecture}));
    }
  }
}

#endif

TEST(KernelTextsOfSpec, are_all_that_a_spec_may_need) {
  AttentionSpec spec;
  spec.num_query_heads = 8, spec.num_kv_heads = 8, spec.head_dim_qk = 64;
  const auto kernels_of = [&] {
    std::vector<std::string> names;
    for (const KernelText& text : texts_for(spec, device_info("rtx3090"))) {
      EXPECT_EQ(text.key.architecture().name(), "sm_80");
      names.push_back(text.key.kernel());
    }
    return names;
  };
  using testing::ElementsAre;
  EXPECT_THAT(kernels_of(),
              ElementsAre("attention_sm80", "attention_sm80", "attention_sm80", "attention_sm80",
                          "merge_rows", "write_kv", "rope_write_kv"));
  spec.page_size = 0;
  EXPECT_THAT(kernels_of(), ElementsAre("attention_sm80", "attention_sm80", "attention_sm80",
                                        "attention_sm80", "merge_rows"));
}

// Where it may begin before the kernel before it has ended.
TEST(MergeStatesText, waits_for_the_kernel_before_first_of_all) {
  for (const auto& [architecture, waits] :
       {std::pair{80, false}, {89, false}, {90, true}, {120, true}})
    EXPECT_EQ(merge_states_text(DType::kFloat32, DType::kFloat32, {architecture})
                      .source.entry.find("{\n  wait_for_previous_kernel();\n") != std::string::npos,
              waits)
        << architecture;
}

TEST(ArchitectureFor, one_image_serves_a_family) {
  for (const auto& [device, built_for] : {std::pair{80, 80},
                                          {86, 80},
                                          {89, 89},
                                          {90, 90},
                                          {100, 100},
                                          {103, 100},
                                          {120, 120},
                                          {121, 120}}) {
    EXPECT_EQ(architecture_for(device).number, built_for);
    EXPECT_TRUE(architecture_for(device).runs_on(device));
  }
}

}  // namespace
}  // namespace rapt::flash_attention
