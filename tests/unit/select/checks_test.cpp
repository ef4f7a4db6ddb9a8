// Every option is honoured or refused, and every refusal says what, how much and how much at most.
#include "select/checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support.hpp"

namespace rapt {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(Checks, refusals_name_the_argument_its_value_and_the_bound) {
  struct Case {
    BackendId backend;
    const char* device;
    std::function<void(AttentionSpec&)> change;
    const char* reason;
  };
  using S = AttentionSpec;
  const Case cases[] = {
      {BackendId::kFlashInfer, "h100", [](S& s) { s.head_dim_qk = 40; },
       "head_dim_qk is 40: must be 64, 128, 256 or 512"},
      {BackendId::kFlashInfer, "h100", [](S& s) { s.alibi = true; },
       "alibi is on: must be off with FlashInfer native"},
      {BackendId::kFlashInfer, "h100", [](S& s) { s.page_size = 24; },
       "page_size is 24: must be 16, 32 or 64, or a multiple of one of them"},
      {BackendId::kFlashInfer, "t4", [](S&) {}, "compute_capability is 7.5: must be 8.0-12.1"},
      {BackendId::kFlashInfer, "h100", [](S& s) { s.dtype = DType::kFloat32; },
       "dtype is float32: must be float16 or bfloat16"},
      {BackendId::kFlashAttention, "a100", [](S& s) { s.head_dim_qk = 100; },
       "head_dim_qk is 100: must be a multiple of 8"},
      {BackendId::kFlashAttention, "a100", [](S& s) { s.head_dim_vo = 264; },
       "head_dim_vo is 264: must equal head_dim_qk 128, or the two within (1-256, 1-256)"},
      {BackendId::kFlashAttention, "a100", [](S& s) { s.kv_scales = KvScales::kPerTensor; },
       "kv_scales is per_tensor: must be none"},
      {BackendId::kFlashAttention, "h100", [](S& s) { s.kv_scales = KvScales::kPerTensor; },
       "kv_scales is per_tensor: must be none with an unquantised cache (bfloat16)"},
      {BackendId::kFlashAttention, "h100",
       [](S& s) {
         s.window = {7, -8};
       },
       "window is (7, -8): both sides must be -1 (no limit) or more"},
      {BackendId::kFlex, "h100", [](S& s) { s.softcap = 50; },
       "softcap is 50: must be 0, off, with flex"},
      {BackendId::kFlex, "h100", [](S& s) { s.alibi = true; },
       "alibi is on: must be off with flex"},
      {BackendId::kFlex, "h100", [](S& s) { s.kind = AttentionKind::kEncoderDecoder; },
       "kind is encoder_decoder: must be decoder or encoder_only"},
      {BackendId::kPortable, "h100", [](S& s) { s.head_dim_qk = 16; },
       "head_dim_qk is 16: must be 32-512"},
      {BackendId::kPortable, "h100", [](S& s) { s.page_size = 8; },
       "page_size is 8: must be a multiple of 16"},
      {BackendId::kPortable, "h100", [](S& s) { s.causal = false; },
       "causal is off: must be on for kind decoder"},
      {BackendId::kPortable, "h100", [](S& s) { s.custom_mask = true; },
       "custom_mask is on: must be off with portable"},
      {BackendId::kPortable, "h100", [](S& s) { s.needs_lse = true; },
       "needs_lse is on: must be off with portable"},
      {BackendId::kPortable, "h100", [](S& s) { s.kv_format = KvFormat::kFloat16; },
       "kv_format is float16: must be bfloat16 (the query dtype's)"},
      {BackendId::kTurboQuant, "h100", [](S& s) { s.head_dim_qk = 96; },
       "head_dim_qk is 96: must be a power of two"},
      {BackendId::kTurboQuant, "h100", [](S& s) { s.batch_invariant = true; },
       "batch_invariant is on: must be off with TurboQuant"},
      {BackendId::kTurboQuant, "h100", [](S& s) { s.page_size = 0; },
       "page_size is 0: needs a paged cache"},
      {BackendId::kPagedAttention, "h100",
       [](S& s) {
         s.window = {127, 0};
       },
       "window is (127, 0): must be (-1, -1), no window, with PagedAttention"},
      {BackendId::kCpu, "cpu", [](S& s) { s.kv_format = KvFormat::kFp8E4M3; },
       "kv_format is fp8_e4m3: must be bfloat16 (the query dtype's)"},
      {BackendId::kCpu, "cpu", [](S& s) { s.head_dim_qk = 520; },
       "head_dim_qk is 520: must be 8-512"},
      {BackendId::kCpu, "cpu", [](S& s) { s.head_dim_qk = 100; },
       "head_dim_qk is 100: must be a multiple of 8"},
      {BackendId::kReference, "cpu", [](S& s) { s.kv_format = KvFormat::kNvfp4; },
       "kv_format is nvfp4: must be bfloat16 (the query dtype's)"},
      {BackendId::kCpu, "h100", [](S&) {}, "device is h100: must be a CPU"},
      {BackendId::kPortable, "cpu", [](S&) {}, "device is cpu: must be a CUDA device"},
  };
  for (const Case& c : cases) {
    AttentionSpec spec = make_spec();
    c.change(spec);
    EXPECT_THAT(reasons(c.backend, spec, c.device), HasSubstr(c.reason));
  }
}

TEST(Checks, windows_are_taken_where_the_kernels_have_them) {
  const auto takes = [](BackendId backend, Window window, bool causal,
                        AttentionKind kind = AttentionKind::kDecoder) {
    AttentionSpec spec = make_spec();
    spec.kind = kind;
    if (kind == AttentionKind::kEncoderOnly) spec.page_size = 0;
    if (kind == AttentionKind::kDecoder) spec.causal = causal;
    spec.window = window;
    return reasons(backend, spec, backend == BackendId::kCpu ? "cpu" : "a100").find("window is") ==
           std::string::npos;
  };
  EXPECT_TRUE(takes(BackendId::kFlashInfer, {127, 0}, true));
  EXPECT_TRUE(takes(BackendId::kFlashInfer, {127, -1}, false));
  EXPECT_FALSE(takes(BackendId::kFlashInfer, {127, 127}, false));
  EXPECT_TRUE(takes(BackendId::kFlashAttention, {127, 5}, false));
  EXPECT_FALSE(takes(BackendId::kFlashAttention, {-3, 5}, false));
  EXPECT_TRUE(takes(BackendId::kPortable, {9, 9}, false, AttentionKind::kEncoderOnly));
  EXPECT_FALSE(takes(BackendId::kPortable, {9, 8}, false, AttentionKind::kEncoderOnly));
  EXPECT_TRUE(takes(BackendId::kFlex, {9, 9}, false));
  EXPECT_FALSE(takes(BackendId::kTurboQuant, {127, 0}, true));
  for (Window window : {Window{7, -8}, {-9, -1}, {0, 0}, {3, 100}})
    for (bool causal : {false, true}) EXPECT_TRUE(takes(BackendId::kCpu, window, causal));
}

TEST(Checks, context_parallel_refuses_what_it_would_get_wrong) {
  const SelectOptions ranks{.backend = "flash_attention", .context_parallel_size = 4};
  const auto refusal = [&](auto change) {
    AttentionSpec spec = make_spec();
    change(spec);
    return reasons(BackendId::kFlashAttention, spec, "h100", ranks);
  };
  using S = AttentionSpec;
  EXPECT_THAT(refusal([](S&) {}), IsEmpty());
  EXPECT_THAT(refusal([](S& s) { s.softcap = 30; }), IsEmpty());
  const std::string head = "context_parallel_size is 4: must be 1 ";
  EXPECT_THAT(refusal([](S& s) { s.window = {127, 0}; }), HasSubstr(head + "with window (127, 0)"));
  EXPECT_THAT(refusal([](S& s) { s.sinks = true; }), HasSubstr(head + "with sinks"));
  EXPECT_THAT(refusal([](S& s) { s.alibi = true; }), HasSubstr(head + "with alibi"));
  EXPECT_THAT(refusal([](S& s) { s.page_size = 0; }), HasSubstr(head + "where page_size is 0"));
  EXPECT_THAT(refusal([](S& s) { s.kind = AttentionKind::kEncoderDecoder; }),
              HasSubstr(head + "for kind encoder_decoder"));
  AttentionSpec spec = make_spec();
  spec.causal = false;
  EXPECT_THAT(reasons(BackendId::kFlashInfer, spec, "h100", {.context_parallel_size = 4}),
              HasSubstr(head + "where causal is off"));
  for (BackendId backend : {BackendId::kCpu, BackendId::kReference})
    EXPECT_THAT(reasons(backend, make_spec(), "cpu", {.context_parallel_size = 2}),
                HasSubstr("context_parallel_size is 2: must be 1 with"));
}

TEST(Checks, all_reasons_are_collected) {
  AttentionSpec spec = make_spec(40);
  spec.dtype = DType::kFloat32;
  spec.alibi = true;
  spec.sinks = true;
  spec.page_size = 24;
  const std::string text = reasons(BackendId::kFlashInfer, spec, "t4");
  for (const char* name : {"head_dim_qk is 40", "dtype is float32", "alibi is on", "sinks is on",
                           "page_size is 24", "compute_capability is 7.5"})
    EXPECT_THAT(text, HasSubstr(name));
}

// On SM 10.x FlashInfer has two kernel families; what both refuse is said once.
TEST(Checks, reasons_of_kernel_families_are_told_apart) {
  AttentionSpec spec = make_spec();
  spec.sinks = true;
  spec.softcap = 30;
  spec.alibi = true;
  const std::string text = reasons(BackendId::kFlashInfer, spec, "b200");
  EXPECT_THAT(text, HasSubstr("FlashInfer TRT-LLM: softcap is 30: must be 0"));
  EXPECT_THAT(text, HasSubstr("FlashInfer native: sinks is on: must be off"));
  spec = make_spec(40);
  EXPECT_EQ(reasons(BackendId::kFlashInfer, spec, "b200").find("native: dtype"), std::string::npos);
}

TEST(Checks, on_a_cpu_a_gpu_backend_speaks_once) {
  AttentionSpec spec = make_spec();
  spec.sinks = true;
  EXPECT_EQ(reasons(BackendId::kFlashInfer, spec, "cpu", {.layout = KvLayout::kNHD}),
            "sinks is on: must be off with FlashInfer native\n"
            "device is cpu: must be a CUDA device\n");
}

TEST(Checks, flashinfer_reads_large_pages_only_with_groups) {
  AttentionSpec spec = make_spec();
  spec.page_size = 512;
  const auto page_on_b200 = [&] {
    const DeviceInfo b200 = device_info("b200");
    const SelectOptions options{.backend = "flashinfer"};
    return select({spec, b200, options}, all_built).page_size;
  };
  EXPECT_EQ(page_on_b200(), 512);
  spec.num_query_heads = spec.num_kv_heads = 8;
  EXPECT_EQ(page_on_b200(), 64);
}

TEST(Checks, paged_attention_is_never_chosen_unless_named) {
  AttentionSpec spec = make_spec();
  spec.page_size = 8;  // no other GPU backend reads such pages of float32
  spec.dtype = DType::kFloat32;
  EXPECT_EQ(chosen(spec, "a100"), "none");
  EXPECT_THAT(reasons(BackendId::kPagedAttention, spec, "a100"),
              HasSubstr("backend is auto: paged_attention runs steps of one query token"));
  EXPECT_EQ(chosen(spec, "a100", {.backend = "paged_attention"}), "paged_attention");
}

TEST(Checks, options_out_of_their_range_are_invalid_arguments) {
  const SelectOptions bad[] = {{.flash_attention_version = 5}, {.layout = static_cast<KvLayout>(9)},
                               {.flash_attention_version = 1}, {.manager_page_size = 24},
                               {.manager_page_size = -16},     {.context_parallel_size = 0}};
  for (const SelectOptions& options : bad) {
    try {
      explain(make_spec(), device_info("cpu"), options);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(" is "), HasSubstr(": must be ")));
    }
  }
  AttentionSpec ragged = make_spec();
  ragged.page_size = 0;
  EXPECT_THROW(select(ragged, device_info("cpu"), {.manager_page_size = 16}), Error);
}

}  // namespace
}  // namespace rapt
