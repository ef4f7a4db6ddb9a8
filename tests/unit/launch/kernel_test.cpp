#include "launch/kernel.hpp"

#include <cstring>

#include "unit/launch/allocations.hpp"
#include "unit/launch/fake_driver.hpp"

namespace rapt::cuda {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Params {
  float scale;
  int32_t num_rows;
  int64_t stride;
};

// An image of the fake's: kernel `attend` takes a tensor map, Params, and an int.
constexpr char kImage[] = "cubin attend 128 16 4";

class KernelTest : public FakeDriverTest {
 protected:
  std::string refused(const LaunchShape& shape, const Kernel& kernel) {
    calls();
    const std::string text =
        error_of(ErrorCode::kInvalidArgument, [&] { launch(kernel, shape, {}, map_, params_, 5); });
    EXPECT_THAT(calls(), IsEmpty()) << text;
    return text;
  }

  const Context h200_{Device(driver_, 0)}, a100_{Device(driver_, 1)};
  const TensorMap map_ = {{1, 2, 3}};
  const Params params_ = {0.5f, 7, -3};
};

TEST_F(KernelTest, arguments_arrive_bit_by_bit_with_shape_and_stream) {
  const Module module(h200_, kImage, sizeof(kImage));
  const Kernel kernel(module, "attend", 200'000);
  const CurrentContext current(h200_);
  fake::Stream stream{h200_.handle()};
  calls();
  launch(kernel, {.grid = {6, 4, 3}, .block = {128, 2, 1}, .shared_bytes = 199'999},
         {reinterpret_cast<StreamHandle>(&stream)}, map_, params_, 5);
  EXPECT_THAT(calls(), ElementsAre("cuLaunchKernelEx"));  // no more than that
  ASSERT_EQ(control_->launches.size(), 1u);
  const fake::Launch& seen = control_->launches[0];
  EXPECT_EQ(seen.kernel, "attend");
  const LaunchConfig& config = seen.config;
  EXPECT_THAT((std::array{config.grid_x, config.grid_y, config.grid_z}), ElementsAre(6, 4, 3));
  EXPECT_THAT((std::array{config.block_x, config.block_y, config.block_z}), ElementsAre(128, 2, 1));
  EXPECT_EQ(config.shared_bytes, 199'999u);
  EXPECT_EQ(config.stream, reinterpret_cast<StreamHandle>(&stream));
  EXPECT_THAT(seen.attributes, IsEmpty());
  ASSERT_EQ(seen.parameters.size(), 3u);
  const int number = 5;
  EXPECT_EQ(std::memcmp(seen.parameters[0].data(), &map_, sizeof(map_)), 0);
  EXPECT_EQ(std::memcmp(seen.parameters[1].data(), &params_, sizeof(params_)), 0);
  EXPECT_EQ(std::memcmp(seen.parameters[2].data(), &number, sizeof(number)), 0);
}

TEST_F(KernelTest, a_cluster_and_an_overlap_are_attributes) {
  const Module module(h200_, kImage, sizeof(kImage));
  const Kernel kernel(module, "attend", 0);
  EXPECT_EQ(control_->function_attributes.at(14), 1);  // clusters of more than 8
  const CurrentContext current(h200_);
  launch(kernel, {.grid = {32, 2, 1}, .block = {32}, .cluster = {16}, .overlaps_previous = true},
         {}, map_, params_, 5);
  launch(kernel, {.grid = {4, 2, 1}, .block = {32}, .cluster = {1, 2, 1}}, {}, map_, params_, 5);
  launch(kernel, {.grid = {4}, .block = {32}, .overlaps_previous = true}, {}, map_, params_, 5);
  ASSERT_EQ(control_->launches.size(), 3u);
  const auto& both = control_->launches[0].attributes;
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].id, LaunchAttributeId::kClusterDimension);
  EXPECT_EQ(both[0].value.cluster.x, 16u);
  EXPECT_EQ(both[1].id, LaunchAttributeId::kProgrammaticStreamSerialization);
  EXPECT_EQ(both[1].value.programmatic_stream_serialization_allowed, 1);
  const auto& cluster = control_->launches[1].attributes;
  ASSERT_EQ(cluster.size(), 1u);
  EXPECT_EQ(cluster[0].value.cluster.y, 2u);
  const auto& overlap = control_->launches[2].attributes;
  ASSERT_EQ(overlap.size(), 1u);
  EXPECT_EQ(overlap[0].id, LaunchAttributeId::kProgrammaticStreamSerialization);
}

TEST_F(KernelTest, a_launch_allocates_nothing) {
  const Module module(h200_, kImage, sizeof(kImage));
  driver_.cuLaunchKernelEx = [](const LaunchConfig*, FunctionHandle, void**, void**) {
    return kSuccess;  // unlike the fake's, which writes everything down
  };
  const Kernel kernel(module, "attend", 100);
  const LaunchShape shape = {
      .grid = {4}, .block = {32}, .cluster = {2}, .shared_bytes = 100, .overlaps_previous = true};
  const int64_t before = num_allocations();
  for (int i = 0; i < 3; i++) launch(kernel, shape, {}, map_, params_, i);
  EXPECT_EQ(num_allocations(), before);
  EXPECT_GT(before, 0);  // the count counts
}

TEST_F(KernelTest, before_hopper_nothing_overlaps_and_clusters_are_refused) {
  const Module module(a100_, kImage, sizeof(kImage));
  const Kernel kernel(module, "attend", 0);
  EXPECT_EQ(control_->function_attributes.count(14), 0u);
  const CurrentContext current(a100_);
  launch(kernel, {.grid = {4}, .block = {32}, .overlaps_previous = true}, {}, map_, params_, 5);
  EXPECT_THAT(control_->launches.at(0).attributes, IsEmpty());
  EXPECT_THAT(refused({.grid = {4}, .block = {32}, .cluster = {2}}, kernel),
              HasSubstr("a cluster of 2 blocks, at most 1 on this device"));
}

TEST_F(KernelTest, properties_are_the_drivers) {
  const Module module(h200_, kImage, sizeof(kImage));
  calls();
  const Kernel kernel(module, "attend", 232448 - 128);
  EXPECT_THAT(calls(), testing::Contains("cuFuncLoad"));  // so that no launch loads
  EXPECT_EQ(control_->function_attributes.at(8), 232448 - 128);
  EXPECT_EQ(kernel.name(), "attend");
  EXPECT_EQ(kernel.num_registers(), 168);
  EXPECT_EQ(kernel.local_bytes(), 24);
  EXPECT_EQ(kernel.static_shared_bytes(), 128);
  EXPECT_EQ(kernel.max_dynamic_shared_bytes(), 232448 - 128);
  EXPECT_EQ(kernel.max_threads_per_block(), 384);
  EXPECT_THAT(kernel.parameter_bytes(), ElementsAre(128, 16, 4));
}

TEST_F(KernelTest, shared_memory_is_bounded_by_device_and_kernel) {
  const Module module(h200_, kImage, sizeof(kImage));
  for (int32_t bytes : {-1, 232448 - 127})
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { Kernel(module, "attend", bytes); }),
                AllOf(HasSubstr(concat("max_dynamic_shared_bytes is ", bytes)),
                      HasSubstr("from 0 to 232320 on NVIDIA H200")));
  const Kernel kernel(module, "attend", 1000);
  EXPECT_THAT(refused({.block = {32}, .shared_bytes = 1001}, kernel),
              HasSubstr("shared_bytes is 1001, at most 1000"));
}

TEST_F(KernelTest, impossible_shapes_never_reach_the_driver) {
  const Module module(h200_, kImage, sizeof(kImage));
  const Kernel kernel(module, "attend", 0);
  const CurrentContext current(h200_);
  EXPECT_THAT(refused({.grid = {0}, .block = {32}}, kernel),
              HasSubstr("kernel attend: grid is {0, 1, 1}, must be from {1, 1, 1} to {2147483647"));
  EXPECT_THAT(refused({.grid = {1, 65536, 1}, .block = {32}}, kernel), HasSubstr("grid is"));
  EXPECT_THAT(refused({.block = {0}}, kernel), HasSubstr("block is {0, 1, 1}"));
  EXPECT_THAT(refused({.block = {1, 1, 65}}, kernel), HasSubstr("block is {1, 1, 65}"));
  EXPECT_THAT(refused({.block = {385}}, kernel),
              HasSubstr("a block of 385 threads, at most 384 have registers enough"));
  EXPECT_THAT(refused({.grid = {34}, .block = {1}, .cluster = {17}}, kernel),
              HasSubstr("a cluster of 17 blocks, at most 16"));
  EXPECT_THAT(refused({.grid = {3}, .block = {1}, .cluster = {2}}, kernel),
              HasSubstr("grid is {3, 1, 1}, must be whole clusters of {2, 1, 1}"));
  EXPECT_THAT(refused({.grid = {3}, .block = {1}, .cluster = {0}}, kernel),
              HasSubstr("cluster is {0, 1, 1}"));
}

TEST_F(KernelTest, arguments_that_are_not_the_kernels_never_reach_the_driver) {
  const Module module(h200_, kImage, sizeof(kImage));
  const Kernel kernel(module, "attend", 0);
  const CurrentContext current(h200_);
  const auto refusal = [&](const auto&... arguments) {
    return error_of(ErrorCode::kInvalidArgument,
                    [&] { launch(kernel, {.block = {32}}, {}, arguments...); });
  };
  EXPECT_EQ(refusal(map_, params_), "kernel attend: 2 arguments, it takes 3");
  EXPECT_EQ(refusal(map_, params_, int64_t{5}),
            "kernel attend: argument 2 has 8 bytes, the parameter 4");
  EXPECT_THAT(control_->launches, IsEmpty());
}

TEST_F(KernelTest, an_old_driver_launches_without_that_check) {
  const Driver old(FAKE_OLD_LIBCUDA);
  const Context context(Device(old, 0));
  const Module module(context, kImage, sizeof(kImage));
  const Kernel kernel(module, "attend", 0);
  EXPECT_THAT(kernel.parameter_bytes(), IsEmpty());
  const CurrentContext current(context);
  EXPECT_NO_THROW(launch(kernel, {.block = {32}}, {}, map_, params_, 5));
}

TEST_F(KernelTest, a_refused_image_says_device_and_driver) {
  const std::string text = error_of(ErrorCode::kDevice, [&] { Module(a100_, "not a cubin", 12); });
  EXPECT_THAT(text, AllOf(HasSubstr("cuModuleLoadData of 12 bytes on device 1"),
                          HasSubstr("compute capability 80, driver for CUDA 13.0")));
  EXPECT_EQ(control_->num_modules, 0);
}

TEST_F(KernelTest, every_failing_call_is_named_and_later_calls_work) {
  const Module module(h200_, kImage, sizeof(kImage));
  for (const char* call : {"cuModuleGetFunction", "cuFuncLoad", "cuFuncGetAttribute",
                           "cuFuncSetAttribute", "cuFuncGetParamInfo"})
    EXPECT_THAT(error_when_fails(call, [&] { Kernel(module, "attend", 0); }),
                AllOf(HasSubstr(call), HasSubstr(" of attend")));
  EXPECT_THAT(error_of(ErrorCode::kDevice, [&] { Kernel(module, "other", 0); }),
              HasSubstr("cuModuleGetFunction of other"));
  const Kernel kernel(module, "attend", 0);
  const CurrentContext current(h200_);
  const auto run = [&] { launch(kernel, {.block = {32}}, {}, map_, params_, 5); };
  EXPECT_EQ(error_when_fails("cuLaunchKernelEx", run),
            "cuLaunchKernelEx of attend: CUDA_ERROR_FAKE (719), told to fail");
  EXPECT_NO_THROW(run());
}

TEST_F(KernelTest, modules_are_unloaded) {
  { const Module module(h200_, kImage, sizeof(kImage)); }
  EXPECT_EQ(control_->num_modules, 0);
  EXPECT_THAT(calls(), testing::Contains("cuModuleUnload"));
}

}  // namespace
}  // namespace rapt::cuda
