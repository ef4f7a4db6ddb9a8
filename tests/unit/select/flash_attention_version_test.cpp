#include "select/flash_attention_version.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace rapt {
namespace {

int32_t version_on(std::string_view device, const AttentionSpec& spec,
                   const SelectOptions& options = {}) {
  const DeviceInfo info = device_info(device);
  return flash_attention_version({spec, info, options}).version;
}

TEST(FlashAttentionVersion, defaults_follow_the_architecture) {
  const std::pair<const char*, int32_t> expected[] = {
      {"sm75", 2}, {"sm80", 2},  {"sm86", 2},  {"sm89", 2},  {"sm90", 3},
      {"h200", 3}, {"sm100", 4}, {"sm103", 4}, {"sm120", 2}, {"sm121", 2}};
  for (const auto& [device, version] : expected)
    EXPECT_EQ(version_on(device, make_spec()), version) << device;
}

TEST(FlashAttentionVersion, kernels_exist_where_they_were_written_for) {
  for (int32_t sm : {75, 80, 86, 89, 90, 100, 103, 110, 120, 121}) {
    EXPECT_EQ(has_flash_attention(2, sm), sm >= 80) << sm;
    EXPECT_EQ(has_flash_attention(3, sm), sm == 90) << sm;
    EXPECT_EQ(has_flash_attention(4, sm), 90 <= sm && sm < 120) << sm;
  }
}

TEST(FlashAttentionVersion, version_3_asked_for_past_hopper_moves_on) {
  EXPECT_EQ(version_on("b200", make_spec(), {.flash_attention_version = 3}), 4);
  EXPECT_EQ(version_on("rtx5090", make_spec(), {.flash_attention_version = 3}), 2);
}

TEST(FlashAttentionVersion, alibi_goes_down_to_2) {
  AttentionSpec spec = make_spec();
  spec.alibi = true;
  EXPECT_EQ(version_on("h100", spec), 2);
  EXPECT_EQ(version_on("b200", spec), 2);
  EXPECT_EQ(version_on("h100", spec, {.flash_attention_version = 4}), 2);
}

TEST(FlashAttentionVersion, hopper_goes_up_to_4_for_wide_heads_and_unequal_ones_with_sinks) {
  EXPECT_EQ(version_on("h100", make_spec(256)), 3);
  EXPECT_EQ(version_on("h100", make_spec(264)), 4);
  AttentionSpec spec = make_spec(192);
  spec.head_dim_vo = 128;
  EXPECT_EQ(version_on("h100", spec), 3);
  spec.sinks = true;
  EXPECT_EQ(version_on("h100", spec), 4);
  spec.head_dim_vo = 192;
  EXPECT_EQ(version_on("h100", spec), 3);
}

TEST(FlashAttentionVersion, batch_invariance_leaves_4) {
  AttentionSpec spec = make_spec();
  spec.batch_invariant = true;
  EXPECT_EQ(version_on("b200", spec), 2);
  EXPECT_EQ(version_on("h100", spec), 3);
  // Up for the width, down for the invariance: what 2 cannot run is then refused.
  spec.head_dim_qk = 512;
  EXPECT_EQ(version_on("h100", spec), 2);
  EXPECT_EQ(chosen(spec, "h100", {.backend = "flash_attention"}), "none");
}

TEST(FlashAttentionVersion, tensor_memory_bounds_heads_on_blackwell_only) {
  for (int32_t head_dim : {136, 160, 192, 256, 512}) {
    EXPECT_EQ(version_on("b200", make_spec(head_dim)), 2) << head_dim;
    EXPECT_EQ(version_on("h100", make_spec(head_dim), {.flash_attention_version = 4}), 4)
        << head_dim;
  }
}

TEST(FlashAttentionVersion, every_step_leaves_a_line) {
  AttentionSpec spec = make_spec(512);
  spec.batch_invariant = true;
  const DeviceInfo h100 = device_info("h100");
  const SelectOptions options;
  EXPECT_THAT(flash_attention_version({spec, h100, options}).trail,
              testing::ElementsAre(testing::HasSubstr("version 3"), testing::HasSubstr("version 4"),
                                   testing::HasSubstr("version 2")));
}

// An option is honoured or refused: a version that the chain had to leave is a reason.
TEST(FlashAttentionVersion, a_version_asked_for_that_cannot_run_is_refused) {
  AttentionSpec spec = make_spec();
  spec.alibi = true;
  EXPECT_THAT(reasons(BackendId::kFlashAttention, spec, "h100", {.flash_attention_version = 3}),
              testing::HasSubstr("flash_attention_version is 3: this problem needs 2"));
  EXPECT_EQ(chosen(spec, "h100", {.flash_attention_version = 2}), "flash_attention 2");
  EXPECT_THAT(
      reasons(BackendId::kFlashAttention, make_spec(), "a100", {.flash_attention_version = 4}),
      testing::HasSubstr("compute_capability is 8.0: must be "));
}

TEST(FlashAttentionVersion, every_version_has_sinks_and_2_has_them_with_alibi) {
  AttentionSpec spec = make_spec();
  spec.sinks = true;
  for (const char* device : {"a100", "l40s", "rtx5090"})
    EXPECT_EQ(chosen(spec, device), "flash_attention 2");
  EXPECT_EQ(chosen(spec, "h100", {.backend = "flash_attention"}), "flash_attention 3");
  EXPECT_EQ(chosen(spec, "b200", {.backend = "flash_attention"}), "flash_attention 4");
  spec.alibi = true;
  EXPECT_EQ(chosen(spec, "h100", {.backend = "flash_attention"}), "flash_attention 2");
}

TEST(FlashAttentionVersion, fp8_caches_need_3) {
  AttentionSpec spec = make_spec();
  spec.kv_format = KvFormat::kFp8E4M3;
  EXPECT_EQ(chosen(spec, "h100"), "flash_attention 3");
  for (int32_t version : {2, 4})
    EXPECT_THAT(
        reasons(BackendId::kFlashAttention, spec, "h100", {.flash_attention_version = version}),
        testing::HasSubstr("kv_format is fp8_e4m3: must be bfloat16"));
}

}  // namespace
}  // namespace rapt
