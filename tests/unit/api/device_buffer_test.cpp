// Contexts on devices and memory of theirs. The GPUs are the fake driver's: an H200 and an A100.
#include "rapt/device_buffer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "rapt/attention.hpp"
#include "rapt/error.hpp"
#include "support/error_of.hpp"

namespace rapt {
namespace {

using test::error_of;
using testing::AllOf;
using testing::HasSubstr;

ContextOptions on(const std::string& device) {
  return {.device = device, .num_threads = 1};
}

class DeviceBufferTest : public testing::TestWithParam<const char*> {
 protected:
  DeviceBufferTest() { setenv("RAPT_LIBCUDA", FAKE_LIBCUDA, 1); }
};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceBufferTest, testing::Values("cpu", "cuda", "cuda:1"),
                         [](const auto& given) {
                           const std::string name = given.param;
                           return name == "cuda:1" ? "cuda_1" : name;
                         });

TEST_P(DeviceBufferTest, keeps_what_is_copied_to_it) {
  Context context(on(GetParam()));
  DeviceBuffer buffer(context, 1000);
  EXPECT_EQ(buffer.bytes(), 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
  EXPECT_EQ(buffer.device(), context.tensor_device());
  EXPECT_EQ(buffer.host_accessible(), std::string(GetParam()) == "cpu");
  std::vector<uint8_t> bytes(1000), back(900);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  buffer.copy_from_host(bytes.data(), 1000);
  buffer.copy_from_host(bytes.data(), 5, 500);
  context.synchronize();
  DeviceBuffer moved = std::move(buffer);
  moved.copy_to_host(back.data(), 900, 100);
  std::copy_n(bytes.begin(), 5, bytes.begin() + 500);
  EXPECT_TRUE(std::equal(back.begin(), back.end(), bytes.begin() + 100));
}

TEST_P(DeviceBufferTest, refuses_what_lies_outside) {
  Context context(on(GetParam()));
  DeviceBuffer buffer(context, 10), empty(context, 0);
  uint8_t bytes[16] = {};
  EXPECT_EQ(empty.data(), nullptr);
  empty.copy_from_host(bytes, 0);
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { buffer.copy_from_host(bytes, 8, 3); }),
              AllOf(HasSubstr("8 bytes at offset 3"), HasSubstr("has 10")));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { buffer.copy_to_host(bytes, 1, 11); }),
              HasSubstr("1 bytes at offset 11"));
}

// Sizes that would wrap when rounded up to an alignment.
TEST(DeviceBufferOnTheCpu, more_than_there_can_be_is_out_of_memory) {
  Context context(on("cpu"));
  for (const size_t bytes :
       {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX - 254, SIZE_MAX - 255, SIZE_MAX - 256, SIZE_MAX / 2 + 1})
    EXPECT_THAT(error_of(ErrorCode::kOutOfMemory, [&] { DeviceBuffer buffer(context, bytes); }),
                HasSubstr(std::to_string(bytes) + " bytes"));
}

TEST(DeviceContext, describes_the_gpu_it_was_asked_for) {
  setenv("RAPT_LIBCUDA", FAKE_LIBCUDA, 1);
  const Context first(on("cuda")), second(on("cuda:1"));
  EXPECT_EQ(first.device().compute_capability, 90);
  EXPECT_EQ(first.tensor_device(), (Device{DeviceKind::kCuda, 0}));
  EXPECT_EQ(second.device().compute_capability, 80);
  EXPECT_EQ(second.tensor_device(), (Device{DeviceKind::kCuda, 1}));
}

TEST(DeviceContext, are_listed_by_their_numbers) {
  setenv("RAPT_LIBCUDA", FAKE_LIBCUDA, 1);
  const std::vector<DeviceInfo> devices = cuda_devices();
  ASSERT_EQ(devices.size(), 2u);
  for (size_t i = 0; i < devices.size(); i++) {
    const Context context(on("cuda:" + std::to_string(i)));
    EXPECT_EQ(context.device().name, devices[i].name);
    EXPECT_EQ(context.device().compute_capability, devices[i].compute_capability);
    EXPECT_EQ(context.device().num_sms, devices[i].num_sms);
  }
}

TEST(DeviceContext, refuses_devices_that_are_not_there) {
  setenv("RAPT_LIBCUDA", FAKE_LIBCUDA, 1);
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda1", "emulated-sm", "CPU",
                           "emulated-smx", "h100"})
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { Context context(on(name)); }),
                AllOf(HasSubstr("\"" + std::string(name) + "\""), HasSubstr("cuda:N")));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [] { Context context(on("cuda:2")); }),
              AllOf(HasSubstr("CUDA device 2"), HasSubstr("has 2")));
}

TEST(DeviceContext, has_an_isa_on_the_cpu_alone) {
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [] { Context context({.device = "cuda", .isa = CpuIsa::kBaseline}); }),
              HasSubstr("isa is given"));
}

TEST(DeviceContext, names_the_pack_that_cannot_be_read) {
  setenv("RAPT_LIBCUDA", FAKE_LIBCUDA, 1);
  ContextOptions options = on("cuda");
  options.packs = {"/nowhere/kernels.rpk"};
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { Context context(options); }),
              HasSubstr("/nowhere/kernels.rpk"));
  setenv("RAPT_PACK", ":/nowhere/other.rpk", 1);
  EXPECT_THAT(error_of(ErrorCode::kIo, [] { Context context(on("cuda")); }),
              HasSubstr("/nowhere/other.rpk"));
  unsetenv("RAPT_PACK");
}

// Until a kernel is needed nothing is missing.
TEST(DeviceContext, names_the_kernel_and_the_compiler_that_is_missing) {
  setenv("RAPT_LIBCUDA", FAKE_LIBCUDA, 1);
  setenv("RAPT_NVRTC", "/nowhere/libnvrtc.so", 1);
  ContextOptions options = on("cuda");
  options.cache_folder = "";
  Context context(options);
  const AttentionSpec spec{.num_query_heads = 4,
                           .num_kv_heads = 2,
                           .head_dim_qk = 104,  // no model's: rapt/core.rpk may be there
                           .dtype = DType::kBFloat16,
                           .page_size = 0};
  const Attention attention(context, spec);
  EXPECT_EQ(attention.selection().backend, BackendId::kFlashAttention);
  EXPECT_EQ(attention.selection().version, 2);
  const std::vector<int32_t> start{0, 5}, kv_len{5};
  EXPECT_THAT(
      error_of(
          ErrorCode::kMissingLibrary,
          [&] { attention.plan({.query_start = start, .kv_len = kv_len, .kv_start = start}); }),
      AllOf(HasSubstr("kernel attention_sm80 sm_90 "), HasSubstr("is in no"),
            HasSubstr("/nowhere/libnvrtc.so"), HasSubstr("install NVRTC")));
  EXPECT_EQ(attention.plan({}).workspace_bytes(), 0u);
  unsetenv("RAPT_NVRTC");
}

}  // namespace
}  // namespace rapt
