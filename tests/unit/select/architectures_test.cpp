// What runs where: a table over all compute capabilities (public report K19: Blackwell consumer
// parts were refused, or sent to a generic path, though their kernels existed).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace rapt {
namespace {

struct Row {
  const char* device;
  const char* plain;           // bfloat16, head dim 128
  const char* fp16;            // the same in float16
  const char* fp8;             // FP8 E4M3 cache
  const char* sinks;           // attention sinks
  const char* alibi;           // ALiBi
  const char* nvfp4;           // NVFP4 cache
  const char* per_token_head;  // int8 cache with a scale per token and head
};

constexpr Row kExpected[] = {
    {"sm75", "none", "portable", "none", "none", "none", "none", "none"},
    {"sm80", "flash_attention 2", "flash_attention 2", "flashinfer", "flash_attention 2",
     "flash_attention 2", "none", "portable"},
    {"sm86", "flash_attention 2", "flash_attention 2", "flashinfer", "flash_attention 2",
     "flash_attention 2", "none", "portable"},
    {"sm89", "flash_attention 2", "flash_attention 2", "flashinfer", "flash_attention 2",
     "flash_attention 2", "none", "portable"},
    {"sm90", "flash_attention 3", "flash_attention 3", "flash_attention 3", "flash_attention 3",
     "flash_attention 2", "none", "portable"},
    {"sm100", "flashinfer", "flashinfer", "flashinfer", "flashinfer", "flash_attention 2",
     "flashinfer", "portable"},
    {"sm103", "flashinfer", "flashinfer", "flashinfer", "flashinfer", "flash_attention 2",
     "flashinfer", "portable"},
    {"sm120", "flash_attention 2", "flash_attention 2", "flashinfer", "flash_attention 2",
     "flash_attention 2", "none", "portable"},
    {"sm121", "flash_attention 2", "flash_attention 2", "flashinfer", "flash_attention 2",
     "flash_attention 2", "none", "portable"},
};

TEST(Architectures, each_has_the_backend_made_for_it) {
  for (const Row& row : kExpected) {
    SCOPED_TRACE(row.device);
    AttentionSpec spec = make_spec();
    EXPECT_EQ(chosen(spec, row.device), row.plain);
    spec.dtype = DType::kFloat16;
    EXPECT_EQ(chosen(spec, row.device), row.fp16);
    spec = make_spec();
    spec.kv_format = KvFormat::kFp8E4M3;
    EXPECT_EQ(chosen(spec, row.device), row.fp8);
    spec.kv_format = KvFormat::kNvfp4;
    EXPECT_EQ(chosen(spec, row.device), row.nvfp4);
    spec.kv_format = KvFormat::kInt8PerTokenHead;
    spec.kv_scales = KvScales::kPerTokenHead;
    EXPECT_EQ(chosen(spec, row.device), row.per_token_head);
    spec = make_spec();
    spec.sinks = true;
    EXPECT_EQ(chosen(spec, row.device), row.sinks);
    spec = make_spec();
    spec.alibi = true;
    EXPECT_EQ(chosen(spec, row.device), row.alibi);
  }
}

TEST(Architectures, bfloat16_is_refused_where_there_is_none) {
  for (BackendId backend : {BackendId::kPortable, BackendId::kFlex})
    EXPECT_THAT(reasons(backend, make_spec(), "t4"),
                testing::HasSubstr("dtype is bfloat16: SM 7.5 has no bfloat16"));
}

TEST(Architectures, every_known_gpu_runs_a_plain_half_precision_model) {
  AttentionSpec spec = make_spec();
  spec.dtype = DType::kFloat16;
  for (const std::string& name : known_device_names())
    EXPECT_NE(chosen(spec, name), "none") << name;
}

TEST(Architectures, every_isa_level_has_the_cpu_backend) {
  for (const char* name :
       {"cpu-baseline", "cpu-avx2", "cpu-avx512", "cpu-avx512-bf16", "cpu-amx-bf16"})
    EXPECT_EQ(chosen(make_spec(), name), "cpu");
}

TEST(Architectures, priority_puts_flashinfer_first_on_blackwell_unless_not_causal) {
  const auto first = [](const char* device, bool causal) {
    AttentionSpec spec = make_spec();
    spec.causal = causal;
    return explain(spec, device_info(device)).front().backend;
  };
  EXPECT_EQ(first("sm100", true), BackendId::kFlashInfer);
  EXPECT_EQ(first("sm103", true), BackendId::kFlashInfer);
  EXPECT_EQ(first("sm100", false), BackendId::kFlashAttention);
  for (const char* device : {"sm75", "sm80", "sm90", "sm120"})
    EXPECT_EQ(first(device, true), BackendId::kFlashAttention) << device;
  EXPECT_EQ(first("cpu", true), BackendId::kCpu);
}

TEST(Architectures, flashinfer_keeps_hnd_on_blackwell) {
  const DeviceInfo b200 = device_info("b200"), h100 = device_info("h100");
  const AttentionSpec spec = make_spec();
  const auto layout = [&](const DeviceInfo& device, const SelectOptions& options) {
    return select({spec, device, options}, all_built).layout;
  };
  const SelectOptions flashinfer{.backend = "flashinfer"};
  EXPECT_EQ(layout(b200, flashinfer), KvLayout::kHND);
  EXPECT_EQ(layout(h100, flashinfer), KvLayout::kNHD);
  EXPECT_EQ(layout(h100, {.backend = "flashinfer", .layout = KvLayout::kHND}), KvLayout::kHND);
  EXPECT_EQ(layout(b200, {.layout = KvLayout::kHND}), KvLayout::kHND);
  EXPECT_THAT(reasons(BackendId::kFlashInfer, spec, "b200", {.layout = KvLayout::kNHD}),
              testing::HasSubstr("layout is NHD: must be HND on SM 10.0"));
  EXPECT_EQ(chosen(spec, "b200", {.layout = KvLayout::kNHD}), "flash_attention 4");
}

TEST(Architectures, graph_levels_are_the_kernels_own) {
  const auto graph = [](const char* device, const char* backend, bool sinks = false) {
    AttentionSpec spec = make_spec();
    spec.sinks = sinks;
    const DeviceInfo info = device_info(device);
    const SelectOptions options{.backend = backend};
    return select({spec, info, options}, all_built).graph;
  };
  EXPECT_EQ(graph("a100", "flash_attention"), GraphSupport::kAlways);
  EXPECT_EQ(graph("h100", "flash_attention"), GraphSupport::kAlways);
  EXPECT_EQ(graph("b200", "flash_attention"), GraphSupport::kUniformBatch);
  EXPECT_EQ(graph("h100", "flashinfer"), GraphSupport::kSingleTokenDecode);
  EXPECT_EQ(graph("b200", "flashinfer"), GraphSupport::kUniformBatch);
  EXPECT_EQ(graph("h100", "portable"), GraphSupport::kAlways);
  EXPECT_EQ(graph("h100", "flex"), GraphSupport::kAlways);
  EXPECT_EQ(graph("cpu", "cpu"), GraphSupport::kNever);
}

}  // namespace
}  // namespace rapt
