// Captured work on an emulated device.
#include "launch/kernel_chain.hpp"
#include "support/cuda_graph.hpp"
#include "unit/emulator_driver/emulated.hpp"

namespace rapt::cuda {
namespace {

using test::CudaGraph;
using testing::ElementsAre;
using testing::HasSubstr;

class EmulatedGraph : public EmulatedDevice {
 protected:
  const Stream stream_{static_cast<StreamHandle>(test::kThreadStream)};
};

TEST_F(EmulatedGraph, does_its_work_at_each_launch_in_order_on_what_memory_holds_then) {
  const Kernel& kernel = load(source_of("added",
                                        "extern \"C\" GLOBAL void added(int* data, int n) {\n"
                                        "  data[thread_index()] += n;\n}"));
  HostBuffer input(context_, 8);
  auto* const numbers = static_cast<int*>(input.data());
  const DeviceBuffer data = on_device(std::vector<int>{7, 7}), copy(context_, 8);
  const CudaGraph graph(context_, [&] {
    EXPECT_TRUE(capture_of(driver(), stream_).active());
    copy_to_device(driver(), data.address(), numbers, 8, stream_);
    launch(kernel, {.block = {2}}, stream_, data.address(), 10);
    copy_on_device(driver(), copy.address(), data.address(), 8, stream_);
    fill(driver(), data.address(), 0, 4, stream_);
  });
  EXPECT_FALSE(capture_of(driver(), stream_).active());
  EXPECT_THAT(on_host<int>(data), ElementsAre(7, 7));  // nothing was done yet
  for (const int first : {1, 5}) {
    numbers[0] = first, numbers[1] = first + 1;
    graph.launch();
    EXPECT_THAT(on_host<int>(copy), ElementsAre(first + 10, first + 11));
    EXPECT_THAT(on_host<int>(data), ElementsAre(0, first + 11));
  }
}

TEST_F(EmulatedGraph, a_chain_is_launched_as_its_kernels_were_last_set) {
  const Kernel& added = load(source_of("added",
                                       "extern \"C\" GLOBAL void added(int* data, int n) {\n"
                                       "  data[thread_index()] += n;\n}"));
  const Kernel& doubled = load(source_of("doubled",
                                         "extern \"C\" GLOBAL void doubled(int* data) {\n"
                                         "  data[thread_index()] *= 2;\n}"));
  ASSERT_TRUE(KernelChain::is_supported(driver()));
  const DeviceBuffer data = on_device(std::vector<int>{7, 7});
  KernelChain chain(context_, 2, added);
  chain.set(0, added, {.block = {2}}, data.address(), 10);
  chain.set(1, doubled, {.block = {1}}, data.address());
  EXPECT_THAT(on_host<int>(data), ElementsAre(7, 7));  // nothing was done yet
  chain.launch(stream_);
  EXPECT_THAT(on_host<int>(data), ElementsAre(34, 17));
  chain.set(0, doubled, {.block = {2}}, data.address());
  chain.set(1, added, {.block = {1}}, data.address(), 1);
  chain.launch({});
  EXPECT_THAT(on_host<int>(data), ElementsAre(69, 34));
}

TEST_F(EmulatedGraph, other_streams_do_their_work_meanwhile) {
  const DeviceBuffer data = on_device(std::vector<int>{7});
  const CudaGraph graph(context_, [&] {
    EXPECT_FALSE(capture_of(driver(), {}).active());
    fill(driver(), data.address(), 0, 4, {});
    EXPECT_THAT(on_host<int>(data), ElementsAre(0));
    EXPECT_THAT(error_of(ErrorCode::kDevice, [&] { CudaGraph(context_, [] {}); }),
                HasSubstr("the stream is being captured"));
    const OwnedEvent event(context_);
    EXPECT_THAT(error_of(ErrorCode::kDevice, [&] { record(driver(), event, stream_); }),
                HasSubstr("events on a captured stream"));
  });
  graph.launch();
}

}  // namespace
}  // namespace rapt::cuda
