#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "c_tensor.hpp"
#include "expect_status.hpp"

namespace rapt::test {
namespace {

// Runs a ragged step that is long enough to be worth several threads.
rapt_status run_something(rapt_context* context) {
  constexpr int32_t kTokens = 500;
  const rapt_attention_spec spec = {.struct_size = sizeof spec,
                                    .num_query_heads = 2,
                                    .num_kv_heads = 2,
                                    .head_dim_qk = 16,
                                    .dtype = {kDLFloat, 32, 1}};
  rapt_attention* attention = nullptr;
  EXPECT_TRUE(succeeded(rapt_attention_create(context, &spec, nullptr, &attention)));
  const int32_t start[] = {0, kTokens}, kv_len[] = {kTokens};
  const rapt_batch batch = {.struct_size = sizeof batch,
                            .num_requests = 1,
                            .query_start = start,
                            .kv_len = kv_len,
                            .kv_start = start};
  rapt_plan* plan = nullptr;
  EXPECT_TRUE(succeeded(rapt_plan_create(attention, &batch, &plan)));
  size_t bytes = 0;
  EXPECT_TRUE(succeeded(rapt_plan_workspace_bytes(plan, &bytes)));
  void* workspace = ::operator new (bytes + 1, std::align_val_t{RAPT_WORKSPACE_ALIGNMENT});
  std::vector<float> rows(kTokens * 2 * 16, 0.5f), out(rows.size());
  CTensor in(TensorView::contiguous(rows.data(), DType::kFloat32, {kTokens, 2, 16}));
  CTensor result(TensorView::contiguous(out.data(), DType::kFloat32, {kTokens, 2, 16}));
  const rapt_run_args args = {.struct_size = sizeof args,
                              .q = in.get(),
                              .k = in.get(),
                              .v = in.get(),
                              .out = result.get(),
                              .workspace = workspace,
                              .workspace_bytes = bytes};
  const rapt_status status = rapt_run(plan, &args);
  ::operator delete (workspace, std::align_val_t{RAPT_WORKSPACE_ALIGNMENT});
  if (status == RAPT_OK) {
    EXPECT_NEAR(out.back(), 0.5f, 1e-6);
  }
  rapt_plan_destroy(plan);
  rapt_attention_destroy(attention);
  return status;
}

TEST(CContext, runs_on_the_callers_parallel_for) {
  std::atomic<int> tasks{0};
  const rapt_context_options options = {
      .struct_size = sizeof options,
      .num_threads = 2,
      .parallel_for =
          [](void* user, int32_t num_tasks, rapt_task task, void* task_data) {
            for (int32_t i = num_tasks - 1; i >= 0; i--) {  // any order is right
              task(task_data, i);
              ++*static_cast<std::atomic<int>*>(user);
            }
          },
      .parallel_for_user = &tasks};
  rapt_context* context = nullptr;
  ASSERT_TRUE(succeeded(rapt_context_create(&options, &context)));
  EXPECT_TRUE(succeeded(run_something(context)));
  EXPECT_GT(tasks, 0);
  rapt_context_destroy(context);
}

TEST(CContext, turns_what_a_callback_throws_into_a_status) {
  auto with = [](rapt_parallel_for hook) {
    const rapt_context_options options = {
        .struct_size = sizeof options, .num_threads = 2, .parallel_for = hook};
    rapt_context* context = nullptr;
    EXPECT_TRUE(succeeded(rapt_context_create(&options, &context)));
    const rapt_status status = run_something(context);
    rapt_context_destroy(context);
    return status;
  };
  EXPECT_TRUE(refused(
      with([](void*, int32_t, rapt_task, void*) { throw std::runtime_error("pool is gone"); }),
      RAPT_INTERNAL, "pool is gone"));
  EXPECT_TRUE(refused(with([](void*, int32_t, rapt_task, void*) { throw std::bad_alloc(); }),
                      RAPT_OUT_OF_MEMORY, "allocation"));
  EXPECT_TRUE(refused(with([](void*, int32_t, rapt_task, void*) { throw 7; }), RAPT_INTERNAL,
                      "no std::exception"));
}

TEST(CContext, tells_its_log_what_was_chosen) {
  std::string heard;
  const rapt_context_options options = {.struct_size = sizeof options,
                                        .log =
                                            [](void* user, rapt_log_level level, const char* text) {
                                              EXPECT_EQ(level, RAPT_LOG_INFO);
                                              *static_cast<std::string*>(user) += text;
                                            },
                                        .log_user = &heard};
  rapt_context* context = nullptr;
  ASSERT_TRUE(succeeded(rapt_context_create(&options, &context)));
  EXPECT_TRUE(succeeded(run_something(context)));
  EXPECT_EQ(heard.rfind("chosen: cpu", 0), 0u) << heard;
  EXPECT_NE(heard.back(), '\n') << heard;
  rapt_context_destroy(context);
}

TEST(CContext, refuses_bad_options) {
  auto refuses = [](const char* words, rapt_context_options options) {
    options.struct_size = sizeof options;
    rapt_context* context = nullptr;
    EXPECT_TRUE(refused(rapt_context_create(&options, &context), RAPT_INVALID_ARGUMENT, words));
    EXPECT_EQ(context, nullptr);
  };
  refuses("num_threads is -1", {.num_threads = -1});
  refuses("check_device_indices is 2", {.check_device_indices = 2});
  refuses("options->isa is \"avx9\"", {.isa = "avx9"});
  refuses("device is \"gpu\"", {.device = "gpu"});
  refuses("packs is null, but num_packs is 1", {.num_packs = 1});
  const char* const packs[] = {nullptr};
  refuses("packs[i] is null", {.packs = packs, .num_packs = 1});
}

TEST(CContext, gives_memory_of_its_device) {
  rapt_context* context = nullptr;
  ASSERT_TRUE(succeeded(rapt_context_create(nullptr, &context)));
  rapt_device_buffer* buffer = nullptr;
  ASSERT_TRUE(succeeded(rapt_device_buffer_create(context, 100, &buffer)));
  rapt_device_buffer_info info{};
  info.struct_size = sizeof info;
  ASSERT_TRUE(succeeded(rapt_device_buffer_get_info(buffer, &info)));
  EXPECT_EQ(info.bytes, 100u);
  EXPECT_EQ(info.device.device_type, kDLCPU);
  EXPECT_EQ(info.host_accessible, 1);
  EXPECT_TRUE(succeeded(rapt_device_buffer_copy_from_host(buffer, "rapt", 5, 90, nullptr)));
  EXPECT_TRUE(succeeded(rapt_context_synchronize(context, nullptr)));
  EXPECT_STREQ(static_cast<char*>(info.data) + 90, "rapt");
  char text[5] = "";
  EXPECT_TRUE(succeeded(rapt_device_buffer_copy_to_host(buffer, text, 5, 90, nullptr)));
  EXPECT_STREQ(text, "rapt");
  EXPECT_TRUE(refused(rapt_device_buffer_copy_to_host(buffer, text, 5, 96, nullptr),
                      RAPT_INVALID_ARGUMENT, "5 bytes at offset 96"));
  EXPECT_TRUE(refused(rapt_device_buffer_copy_from_host(buffer, nullptr, 5, 0, nullptr),
                      RAPT_INVALID_ARGUMENT, "from is null"));
  rapt_context_destroy(context);  // the buffer keeps it
  rapt_device_buffer_destroy(buffer);
  rapt_device_buffer_destroy(nullptr);
}

TEST(CContext, describes_its_device) {
  const rapt_context_options options = {
      .struct_size = sizeof options, .num_threads = 2, .isa = "baseline"};
  rapt_context* context = nullptr;
  ASSERT_TRUE(succeeded(rapt_context_create(&options, &context)));
  rapt_device_info info{};
  info.struct_size = sizeof info;
  EXPECT_TRUE(succeeded(rapt_context_device(context, &info)));
  EXPECT_EQ(info.device_type, kDLCPU);
  EXPECT_STREQ(info.isa, "baseline");
  EXPECT_EQ(info.num_cores, 2);
  rapt_context_destroy(context);
}

TEST(CDevice, knows_the_devices_of_the_table) {
  rapt_device_info info{};
  info.struct_size = sizeof info;
  ASSERT_TRUE(succeeded(rapt_device_info_of("h100", &info)));
  const DeviceInfo h100 = device_info("h100");
  EXPECT_EQ(info.device_type, kDLCUDA);
  EXPECT_STREQ(info.name, h100.name.c_str());
  EXPECT_EQ(info.compute_capability, 90);
  EXPECT_EQ(info.num_sms, h100.num_sms);
  EXPECT_EQ(info.shared_memory_bytes_per_block, h100.shared_memory_bytes_per_block);
  EXPECT_EQ(info.memory_bytes, h100.memory_bytes);
  EXPECT_EQ(info.memory_bandwidth, h100.memory_bandwidth);
  EXPECT_STREQ(info.isa, "");
  rapt_device_info untouched = info;
  EXPECT_TRUE(refused(rapt_device_info_of("h1000", &info), RAPT_INVALID_ARGUMENT, "h1000"));
  EXPECT_EQ(std::memcmp(&info, &untouched, sizeof info), 0);

  std::vector<std::string> names;
  for (size_t i = 0; i < rapt_num_devices(); i++) {
    names.push_back(rapt_device_name(i));
    EXPECT_TRUE(succeeded(rapt_device_info_of(names.back().c_str(), &info)));
  }
  EXPECT_EQ(names, known_device_names());
  EXPECT_EQ(rapt_device_name(names.size()), nullptr);
}

}  // namespace
}  // namespace rapt::test
