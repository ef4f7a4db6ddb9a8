#include <gtest/gtest.h>

#include <cstring>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

#include "c_tensor.hpp"
#include "expect_status.hpp"

namespace rapt::test {
namespace {

// Numbers cross the boundary by value: both sides must count alike.
static_assert(RAPT_INVALID_ARGUMENT == static_cast<int>(ErrorCode::kInvalidArgument));
static_assert(RAPT_UNSUPPORTED == static_cast<int>(ErrorCode::kUnsupported));
static_assert(RAPT_OUT_OF_MEMORY == static_cast<int>(ErrorCode::kOutOfMemory));
static_assert(RAPT_MISSING_LIBRARY == static_cast<int>(ErrorCode::kMissingLibrary));
static_assert(RAPT_DEVICE == static_cast<int>(ErrorCode::kDevice));
static_assert(RAPT_IO == static_cast<int>(ErrorCode::kIo));
static_assert(RAPT_INTERNAL == static_cast<int>(ErrorCode::kInternal));
static_assert(RAPT_LOG_ERROR == static_cast<int>(LogLevel::kError));
static_assert(RAPT_ENCODER == static_cast<int>(AttentionKind::kEncoder));
static_assert(RAPT_ENCODER_ONLY == static_cast<int>(AttentionKind::kEncoderOnly));
static_assert(RAPT_ENCODER_DECODER == static_cast<int>(AttentionKind::kEncoderDecoder));
static_assert(RAPT_SCALES_PER_TENSOR == static_cast<int>(KvScales::kPerTensor));
static_assert(RAPT_SCALES_PER_HEAD == static_cast<int>(KvScales::kPerHead));
static_assert(RAPT_SCALES_PER_TOKEN_HEAD == static_cast<int>(KvScales::kPerTokenHead));
static_assert(RAPT_HND == static_cast<int>(KvLayout::kHND));
static_assert(RAPT_KV_KV_PAGES == static_cast<int>(KvShape::kKvPages));
static_assert(RAPT_KV_PACKED == static_cast<int>(KvShape::kPacked));
static_assert(RAPT_GRAPH_SINGLE_TOKEN_DECODE == static_cast<int>(GraphSupport::kSingleTokenDecode));
static_assert(RAPT_GRAPH_UNIFORM_BATCH == static_cast<int>(GraphSupport::kUniformBatch));
static_assert(RAPT_GRAPH_ALWAYS == static_cast<int>(GraphSupport::kAlways));
static_assert(RAPT_SAMPLE_NAN == static_cast<int>(SampleStatus::kNan));
static_assert(RAPT_SAMPLE_NOTHING_LEFT == static_cast<int>(SampleStatus::kNothingLeft));
static_assert(RAPT_WORKSPACE_ALIGNMENT == kWorkspaceAlignment);

TEST(CStatus, names_kv_formats_in_the_cpp_order) {
  const std::pair<rapt_kv_format, const char*> formats[] = {
      {RAPT_KV_AUTO, "auto"},
      {RAPT_KV_FLOAT32, "float32"},
      {RAPT_KV_FLOAT16, "float16"},
      {RAPT_KV_BFLOAT16, "bfloat16"},
      {RAPT_KV_FP8_E4M3, "fp8_e4m3"},
      {RAPT_KV_FP8_E5M2, "fp8_e5m2"},
      {RAPT_KV_INT8_PER_TOKEN_HEAD, "int8_per_token_head"},
      {RAPT_KV_FP8_PER_TOKEN_HEAD, "fp8_per_token_head"},
      {RAPT_KV_INT4_PER_TOKEN_HEAD, "int4_per_token_head"},
      {RAPT_KV_NVFP4, "nvfp4"},
      {RAPT_KV_TURBOQUANT_K8V4, "turboquant_k8v4"},
      {RAPT_KV_TURBOQUANT_4BIT_NC, "turboquant_4bit_nc"},
      {RAPT_KV_TURBOQUANT_K3V4_NC, "turboquant_k3v4_nc"},
      {RAPT_KV_TURBOQUANT_3BIT_NC, "turboquant_3bit_nc"},
  };
  for (const auto& [number, name] : formats)
    EXPECT_STREQ(to_string(static_cast<KvFormat>(number)), name);
}

TEST(CStatus, has_names_and_a_version) {
  EXPECT_STREQ(rapt_status_name(RAPT_OK), "ok");
  EXPECT_STREQ(rapt_status_name(RAPT_UNSUPPORTED), "unsupported");
  EXPECT_STREQ(rapt_status_name(99), "unknown");
  EXPECT_STREQ(rapt_version(), version());
}

TEST(CStatus, keeps_a_message_for_each_thread) {
  std::latch both_failed(2);
  auto fail_with = [&](const char* isa) {
    EXPECT_STREQ(rapt_last_error_message(), "");  // a fresh thread has failed at nothing
    const rapt_context_options options{.struct_size = sizeof options, .isa = isa};
    rapt_context* context = nullptr;
    EXPECT_EQ(rapt_context_create(&options, &context), RAPT_INVALID_ARGUMENT);
    both_failed.arrive_and_wait();
    EXPECT_NE(std::strstr(rapt_last_error_message(), isa), nullptr) << rapt_last_error_message();
  };
  std::jthread first(fail_with, "first-isa"), second(fail_with, "second-isa");
}

TEST(CStatus, keeps_the_message_through_calls_that_succeed) {
  EXPECT_EQ(rapt_context_create(nullptr, nullptr), RAPT_INVALID_ARGUMENT);
  EXPECT_STREQ(rapt_last_error_message(), "context is null");
  rapt_context* context = nullptr;
  ASSERT_TRUE(succeeded(rapt_context_create(nullptr, &context)));
  EXPECT_STREQ(rapt_last_error_message(), "context is null");
  rapt_context_destroy(context);
}

// An older caller's struct ends earlier, with anything after it.
TEST(CStatus, reads_a_shorter_struct_as_defaults) {
  alignas(rapt_context_options) unsigned char bytes[sizeof(rapt_context_options)];
  std::memset(bytes, 0xff, sizeof bytes);
  const size_t size = offsetof(rapt_context_options, parallel_for);
  const rapt_context_options older{.struct_size = size, .num_threads = 3};
  std::memcpy(bytes, &older, size);
  rapt_context* context = nullptr;
  ASSERT_TRUE(
      succeeded(rapt_context_create(reinterpret_cast<rapt_context_options*>(bytes), &context)));
  int32_t num_threads = 0;
  EXPECT_TRUE(succeeded(rapt_context_num_threads(context, &num_threads)));
  EXPECT_EQ(num_threads, 3);
  rapt_context_destroy(context);
}

struct NewerOptions {
  rapt_context_options known;
  uint64_t unknown;
};

TEST(CStatus, accepts_a_longer_struct_only_while_the_rest_is_zero) {
  NewerOptions options{};
  options.known.struct_size = sizeof options;
  rapt_context* context = nullptr;
  EXPECT_TRUE(succeeded(rapt_context_create(&options.known, &context)));
  rapt_context_destroy(context);
  options.unknown = uint64_t{1} << 63;
  context = nullptr;
  EXPECT_TRUE(refused(rapt_context_create(&options.known, &context), RAPT_INVALID_ARGUMENT,
                      "something newer"));
  EXPECT_EQ(context, nullptr);
}

TEST(CStatus, fills_a_shorter_and_a_longer_struct) {
  struct {
    rapt_page_allocator_stats stats;
    uint64_t unknown;
  } longer{};
  longer.stats.struct_size = sizeof longer;
  longer.unknown = 7;
  rapt_page_allocator* allocator = nullptr;
  ASSERT_TRUE(succeeded(rapt_page_allocator_create(5, 4, 0, &allocator)));
  EXPECT_TRUE(succeeded(rapt_page_allocator_get_stats(allocator, &longer.stats)));
  EXPECT_EQ(longer.stats.num_pages, 5);
  EXPECT_EQ(longer.stats.struct_size, sizeof longer);
  EXPECT_EQ(longer.unknown, 0u);
  rapt_page_allocator_stats shorter{};
  shorter.struct_size = offsetof(rapt_page_allocator_stats, num_free_pages);
  shorter.num_free_pages = -7;
  EXPECT_TRUE(succeeded(rapt_page_allocator_get_stats(allocator, &shorter)));
  EXPECT_EQ(shorter.num_pages, 5);
  EXPECT_EQ(shorter.num_free_pages, -7);
  rapt_page_allocator_destroy(allocator);
}

// Every function with every handle and pointer null: a status, not a crash.
TEST(CStatus, refuses_null_everywhere) {
  const DLDevice cpu{kDLCPU, 0};
  const rapt_status statuses[] = {
      rapt_context_create(nullptr, nullptr),
      rapt_context_num_threads(nullptr, nullptr),
      rapt_context_device(nullptr, nullptr),
      rapt_device_info_of(nullptr, nullptr),
      rapt_select(nullptr, nullptr, nullptr, nullptr),
      rapt_explain(nullptr, nullptr, nullptr, nullptr),
      rapt_verdicts_count(nullptr, nullptr),
      rapt_verdicts_get(nullptr, 0, nullptr),
      rapt_attention_create(nullptr, nullptr, nullptr, nullptr),
      rapt_attention_selection(nullptr, nullptr),
      rapt_attention_explain(nullptr, nullptr, 0, nullptr),
      rapt_write_kv(nullptr, nullptr),
      rapt_plan_create(nullptr, nullptr, nullptr),
      rapt_replan(nullptr, nullptr),
      rapt_graph_plan_create(nullptr, nullptr, nullptr, nullptr),
      rapt_graph_replan(nullptr, nullptr, nullptr),
      rapt_graph_custom_mask_bytes(nullptr, nullptr),
      rapt_plan_workspace_bytes(nullptr, nullptr),
      rapt_plan_num_tokens(nullptr, nullptr),
      rapt_plan_describe(nullptr, nullptr, 0, nullptr),
      rapt_custom_mask_bytes(nullptr, nullptr),
      rapt_run(nullptr, nullptr),
      rapt_merge(nullptr, nullptr),
      rapt_kv_cache_geometry_of(nullptr, 1, 0, 0, 0, nullptr),
      rapt_kv_cache_total_bytes(nullptr, nullptr),
      rapt_kv_cache_page_bytes(nullptr, nullptr),
      rapt_kv_cache_axes(nullptr, nullptr, nullptr, nullptr),
      rapt_kv_cache_view(nullptr, nullptr, 0, cpu, nullptr, nullptr, nullptr),
      rapt_expand_pages(nullptr, 1, 1, nullptr),
      rapt_slot_of(nullptr, 1, 1, 0, nullptr),
      rapt_page_allocator_create(1, 1, 0, nullptr),
      rapt_page_allocator_begin(nullptr, nullptr, 0, nullptr),
      rapt_page_allocator_reserve(nullptr, 0, 0),
      rapt_page_allocator_can_reserve(nullptr, 0, 0, nullptr),
      rapt_page_allocator_append(nullptr, 0, nullptr, 0),
      rapt_page_allocator_fork(nullptr, 0, nullptr, nullptr, nullptr),
      rapt_page_allocator_end(nullptr, 0),
      rapt_page_allocator_pages(nullptr, 0, nullptr, nullptr),
      rapt_page_allocator_tokens(nullptr, 0, nullptr, nullptr),
      rapt_page_allocator_get_stats(nullptr, nullptr),
      rapt_sample(nullptr, nullptr),
  };
  int i = 0;
  for (rapt_status status : statuses) EXPECT_EQ(status, RAPT_INVALID_ARGUMENT) << "entry " << i++;
  rapt_context_destroy(nullptr);
  rapt_attention_destroy(nullptr);
  rapt_plan_destroy(nullptr);
  rapt_verdicts_destroy(nullptr);
  rapt_page_allocator_destroy(nullptr);
}

}  // namespace
}  // namespace rapt::test
