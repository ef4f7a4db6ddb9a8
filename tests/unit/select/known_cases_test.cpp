// Choices that the field's selectors are known to make (spec/attention_layer.md, section 12.9),
// each on a device of the kind it is about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace rapt {
namespace {

using testing::HasSubstr;

TEST(KnownCases, cpu_takes_small_heads_in_every_float_type) {
  for (DType dtype : {DType::kFloat16, DType::kFloat32}) {
    AttentionSpec spec = make_spec(16);
    spec.dtype = dtype;
    EXPECT_EQ(chosen(spec, "cpu"), "cpu");
  }
}

TEST(KnownCases, odd_heads_on_the_cpu_go_to_the_reference) {
  for (int32_t head_dim : {1, 12, 100, 520, 1024})
    EXPECT_EQ(chosen(make_spec(head_dim), "cpu"), "reference") << head_dim;
  AttentionSpec spec = make_spec(64);
  spec.head_dim_vo = 20;
  EXPECT_EQ(chosen(spec, "cpu"), "reference");
}

TEST(KnownCases, a_backend_asked_for_is_the_one_with_and_without_context_parallel) {
  for (const char* device : {"a100", "h100", "b200"})
    for (int32_t ranks : {1, 2}) {
      EXPECT_EQ(
          chosen(make_spec(64), device, {.backend = "flashinfer", .context_parallel_size = ranks}),
          "flashinfer");
      const std::string flash = chosen(
          make_spec(32), device, {.backend = "flash_attention", .context_parallel_size = ranks});
      // Generation 2 has no shards.
      EXPECT_EQ(flash != "none", ranks == 1 || std::string(device) != "a100");
    }
}

TEST(KnownCases, fp32_with_heads_of_16_is_left_to_flex) {
  AttentionSpec spec = make_spec(16);
  spec.dtype = DType::kFloat32;
  for (const char* device : {"t4", "a100", "h100", "b200", "rtx5090"})
    EXPECT_EQ(chosen(spec, device), "flex");
}

TEST(KnownCases, context_parallel_is_refused_by_who_has_none) {
  for (BackendId backend : {BackendId::kPortable, BackendId::kFlex, BackendId::kTurboQuant})
    EXPECT_THAT(reasons(backend, make_spec(), "h100", {.context_parallel_size = 2}),
                HasSubstr("context_parallel_size is 2: must be 1"));
}

TEST(KnownCases, auto_in_any_case_is_no_name) {
  for (const char* name : {"", "auto", "AUTO", "Auto"})
    EXPECT_EQ(chosen(make_spec(), "h100", {.backend = name}), "flash_attention 3");
}

TEST(KnownCases, unknown_name_lists_the_known_ones) {
  try {
    select(make_spec(), device_info("cpu"), {.backend = "NOPE"});
    FAIL() << "NOPE was taken for a backend";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    for (BackendId backend : kAllBackends) EXPECT_THAT(error.what(), HasSubstr(to_string(backend)));
  }
}

TEST(KnownCases, per_head_scales_of_an_fp8_cache_need_flash_attention_3) {
  AttentionSpec spec = make_spec();
  spec.kv_format = KvFormat::kFp8E4M3;
  spec.kv_scales = KvScales::kPerHead;
  spec.page_size = 64;
  EXPECT_EQ(chosen(spec, "h100", {.backend = "flash_attention", .flash_attention_version = 3}),
            "flash_attention 3");
  const SelectOptions refused[] = {{.backend = "flash_attention", .flash_attention_version = 2},
                                   {.backend = "flashinfer"},
                                   {.backend = "flex"}};
  const DeviceInfo h100 = device_info("h100");
  for (const SelectOptions& options : refused) {
    try {
      select({spec, h100, options}, all_built);
      FAIL() << options.backend << " took per-head scales";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr(options.backend));
      EXPECT_THAT(error.what(), HasSubstr("kv_scales is per_head"));
    }
  }
}

TEST(KnownCases, what_is_not_causal_goes_to_who_can) {
  AttentionSpec spec = make_spec();
  spec.causal = false;
  for (const char* device : {"a100", "h100", "b200", "rtx5090"}) {
    EXPECT_EQ(chosen(spec, device, {.backend = "flashinfer"}), "flashinfer");
    EXPECT_NE(chosen(spec, device, {.backend = "flash_attention"}), "none");
    EXPECT_THAT(chosen(spec, device), HasSubstr("flash_attention"));  // also first on SM 10.x
    EXPECT_EQ(chosen(spec, device, {.backend = "portable"}), "none");
  }
}

TEST(KnownCases, flash_attention_refuses_the_caches_it_cannot_read) {
  for (const char* device : {"a100", "h100", "b200"})
    for (KvFormat format :
         {KvFormat::kFp8E5M2, KvFormat::kNvfp4, KvFormat::kFp8PerTokenHead,
          KvFormat::kInt8PerTokenHead, KvFormat::kInt4PerTokenHead, KvFormat::kTurboQuantK8V4}) {
      AttentionSpec spec = make_spec();
      spec.kv_format = format;
      EXPECT_THAT(reasons(BackendId::kFlashAttention, spec, device),
                  HasSubstr(concat("kv_format is ", to_string(format), ": must be ")));
    }
}

// Public report J02: a group size that decode kernels lack showed at the first decode step.
TEST(KnownCases, any_group_size_is_taken_before_anything_is_written) {
  for (const auto& [query_heads, kv_heads] :
       {std::pair{40, 8}, {24, 4}, {28, 4}, {64, 4}, {32, 1}, {9, 3}, {71, 1}, {8, 8}})
    for (const char* device : {"cpu", "a100", "h100", "b200", "rtx5090"}) {
      AttentionSpec spec = make_spec();
      spec.num_query_heads = query_heads;
      spec.num_kv_heads = kv_heads;
      EXPECT_EQ(chosen(spec, device), chosen(make_spec(), device)) << query_heads << device;
      for (const char* name : {"flash_attention", "flashinfer", "portable", "flex"})
        if (device_info(device).kind == DeviceKind::kCuda) {
          EXPECT_NE(chosen(spec, device, {.backend = name}), "none") << name << device;
        }
    }
}

TEST(KnownCases, heads_of_512_before_hopper_go_to_flashinfer) {
  EXPECT_EQ(chosen(make_spec(512), "rtx3090"), "flashinfer");
}

// The trap of the chain: support was claimed for 512 wherever version 4 exists, though on SM 10.x
// the chain ends at version 2.
TEST(KnownCases, heads_of_512_on_blackwell_are_refused_by_flash_attention) {
  for (const char* device : {"b200", "b300"}) {
    EXPECT_EQ(chosen(make_spec(512), device, {.backend = "flash_attention"}), "none");
    EXPECT_THAT(reasons(BackendId::kFlashAttention, make_spec(512), device),
                HasSubstr("head_dim_qk is 512: must be 8-256"));
  }
  EXPECT_EQ(chosen(make_spec(512), "h100"), "flash_attention 4");
}

TEST(KnownCases, flash_attention_4_with_heads_of_256_has_its_exceptions) {
  const auto on_b200 = [](auto change) {
    AttentionSpec spec = make_spec(256);
    spec.page_size = 128;
    SelectOptions options{.backend = "flash_attention"};
    change(spec, options);
    return chosen(spec, "b200", options);
  };
  using Spec = AttentionSpec;
  using Options = SelectOptions;
  EXPECT_EQ(on_b200([](Spec&, Options&) {}), "flash_attention 4");
  EXPECT_EQ(on_b200([](Spec& s, Options&) { s.page_size = 256; }), "flash_attention 4");
  EXPECT_EQ(on_b200([](Spec& s, Options&) { s.page_size = 64; }), "flash_attention 2");
  EXPECT_EQ(on_b200([](Spec& s, Options&) { s.softcap = 30; }), "flash_attention 2");
  EXPECT_EQ(on_b200([](Spec&, Options& o) { o.context_parallel_size = 2; }), "none");  // nor has 2
  EXPECT_EQ(on_b200([](Spec& s, Options&) { s.head_dim_vo = 128; }), "flash_attention 2");
  EXPECT_EQ(on_b200([](Spec& s, Options&) { s.sinks = true; }), "flash_attention 2");
  EXPECT_EQ(on_b200([](Spec& s, Options&) { s.kv_format = KvFormat::kFp8E4M3; }), "none");
}

TEST(KnownCases, flash_attention_4_keeps_small_heads_and_192_with_128_on_small_pages) {
  AttentionSpec spec = make_spec(128);
  EXPECT_EQ(chosen(spec, "b200", {.backend = "flash_attention"}), "flash_attention 4");
  spec = make_spec(192);
  spec.head_dim_vo = 128;
  EXPECT_EQ(chosen(spec, "b200", {.backend = "flash_attention"}), "flash_attention 4");
  spec.head_dim_vo = 0;  // (192, 192) does not fit the tensor memory
  EXPECT_EQ(chosen(spec, "b200", {.backend = "flash_attention"}), "flash_attention 2");
}

}  // namespace
}  // namespace rapt
