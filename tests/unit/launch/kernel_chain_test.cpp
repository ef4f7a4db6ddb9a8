#include "launch/kernel_chain.hpp"

#include <cstring>
#include <memory>

#include "unit/launch/allocations.hpp"
#include "unit/launch/fake_driver.hpp"

namespace rapt::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Images of the fake's: `attend` takes 8 bytes and 4, `merge` 4.
constexpr char kAttend[] = "cubin attend 8 4", kMerge[] = "cubin merge 4";

class KernelChainTest : public FakeDriverTest {
 protected:
  // Of the launches seen: kernel, blocks, threads, shared bytes, stream, parameters.
  static std::string text(const fake::Launch& launch) {
    std::string text = concat(launch.kernel, " ", launch.config.grid_x, "x", launch.config.grid_y,
                              "x", launch.config.grid_z, " ", launch.config.block_x, " ",
                              launch.config.shared_bytes, " on ", launch.config.stream, ":");
    for (const std::string& parameter : launch.parameters) {
      int64_t value = 0;
      std::memcpy(&value, parameter.data(), parameter.size());
      text += concat(" ", value);
    }
    return text;
  }
  std::vector<std::string> launches() {
    std::vector<std::string> texts;
    for (const fake::Launch& launch : std::exchange(control_->launches, {}))
      texts.push_back(text(launch));
    return texts;
  }

  const Context context_{Device(driver_, 0)};
  const CurrentContext current_{context_};
  const Module attend_module_{context_, kAttend, sizeof(kAttend)};
  const Module merge_module_{context_, kMerge, sizeof(kMerge)};
  const Kernel attend_{attend_module_, "attend", 5000}, merge_{merge_module_, "merge", 0};
};

TEST_F(KernelChainTest, its_kernels_run_in_order_as_they_were_last_set) {
  KernelChain chain(context_, 2, attend_);
  EXPECT_THAT(launches(), IsEmpty());
  chain.set(0, attend_, {.grid = {8, 3, 2}, .block = {128}, .shared_bytes = 5000}, int64_t{-7}, 5);
  chain.set(1, merge_, {.grid = {9}, .block = {32}}, 6);
  calls();
  chain.launch({});
  EXPECT_THAT(calls(), ElementsAre("cuGraphLaunch"));
  EXPECT_THAT(launches(),
              ElementsAre("attend 8x3x2 128 5000 on 0: -7 5", "merge 9x1x1 32 0 on 0: 6"));
  // One alone is set anew.
  fake::Stream stream{context_.handle()};
  chain.set(1, merge_, {.grid = {2}, .block = {64}}, 8);
  chain.launch({reinterpret_cast<StreamHandle>(&stream)});
  const std::string on = concat(static_cast<void*>(&stream));
  EXPECT_THAT(launches(), ElementsAre("attend 8x3x2 128 5000 on " + on + ": -7 5",
                                      "merge 2x1x1 64 0 on " + on + ": 8"));
}

TEST_F(KernelChainTest, what_is_not_the_kernels_is_refused_and_changes_nothing) {
  KernelChain chain(context_, 1, merge_);
  chain.set(0, merge_, {.grid = {9}, .block = {32}}, 6);
  const auto refused = [&](const LaunchShape& shape, auto argument) {
    return error_of(ErrorCode::kInvalidArgument, [&] { chain.set(0, merge_, shape, argument); });
  };
  EXPECT_THAT(refused({.grid = {0}, .block = {32}}, 6), HasSubstr("grid is {0, 1, 1}"));
  EXPECT_THAT(refused({.grid = {1}, .block = {32}}, int64_t{6}),
              HasSubstr("argument 0 has 8 bytes, the parameter 4"));
  EXPECT_THAT(refused({.grid = {2}, .block = {32}, .cluster = {2}}, 6),
              HasSubstr("kernel merge: a cluster of blocks in a chain: launch it by itself"));
  EXPECT_EQ(error_when_fails("cuGraphExecKernelNodeSetParams_v2",
                             [&] { chain.set(0, merge_, {.grid = {1}, .block = {32}}, 7); }),
            "cuGraphExecKernelNodeSetParams_v2 of merge: CUDA_ERROR_FAKE (719), told to fail");
  EXPECT_EQ(error_when_fails("cuGraphLaunch", [&] { chain.launch({}); }),
            "cuGraphLaunch of 1 kernels: CUDA_ERROR_FAKE (719), told to fail");
  EXPECT_THAT(launches(), IsEmpty());
  chain.launch({});
  EXPECT_THAT(launches(), ElementsAre("merge 9x1x1 32 0 on 0: 6"));
}

TEST_F(KernelChainTest, graphs_are_destroyed_with_it_or_where_it_cannot_be_made) {
  auto chain = std::make_unique<KernelChain>(context_, 3, attend_);
  EXPECT_EQ(control_->num_graphs, 2);  // the one that is launched was made of the other
  chain.reset();
  EXPECT_EQ(control_->num_graphs, 0);
  for (const char* call :
       {"cuGraphCreate", "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags"}) {
    EXPECT_THAT(error_when_fails(
                    call, [&] { KernelChain(context_, 3, attend_); }, kOutOfMemory),
                HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
    EXPECT_EQ(control_->num_graphs, 0) << call;
  }
}

TEST_F(KernelChainTest, an_old_driver_has_none) {
  EXPECT_TRUE(KernelChain::is_supported(driver_));
  EXPECT_FALSE(KernelChain::is_supported(Driver(FAKE_OLD_LIBCUDA)));
  driver_.version = 12050;
  EXPECT_FALSE(KernelChain::is_supported(driver_));
  driver_.version = 12060;
  EXPECT_TRUE(KernelChain::is_supported(driver_));
  driver_.cuGraphExecKernelNodeSetParams_v2 = nullptr;
  EXPECT_FALSE(KernelChain::is_supported(driver_));
}

TEST_F(KernelChainTest, a_launch_allocates_nothing) {
  KernelChain chain(context_, 2, merge_);
  // Unlike the fake's, these write nothing down.
  driver_.cuGraphExecKernelNodeSetParams_v2 = [](GraphExecHandle, GraphNodeHandle,
                                                 const KernelNodeParams*) { return kSuccess; };
  driver_.cuGraphLaunch = [](GraphExecHandle, StreamHandle) { return kSuccess; };
  const int64_t before = num_allocations();
  for (int i = 0; i < 3; i++) {
    chain.set(0, merge_, {.grid = {1}, .block = {32}}, i);
    chain.set(1, merge_, {.grid = {1}, .block = {32}}, i);
    chain.launch({});
  }
  EXPECT_EQ(num_allocations(), before);
  EXPECT_GT(before, 0);  // the count counts
}

}  // namespace
}  // namespace rapt::cuda
