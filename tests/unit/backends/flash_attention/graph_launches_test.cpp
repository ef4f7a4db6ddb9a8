// What reaches the driver of a graph envelope's plan. Compiler and driver are fake ones.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <tuple>
#include <vector>

#include "fakes/libcuda.hpp"
#include "kernels/abi/attention.hpp"
#include "kernels/abi/merge.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace rapt::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class GraphLaunches : public testing::Test {
 protected:
  GraphLaunches() {
    spec_.page_size = 16;
    spec_.needs_lse = true;
  }

  static void* library() {
    setenv("RAPT_LIBCUDA", FAKE_LIBCUDA, 1);
    setenv("RAPT_NVRTC", FAKE_LIBNVRTC, 1);
    return dlopen(FAKE_LIBCUDA, RTLD_NOW);
  }
  template <typename Function>
  static Function* symbol(const char* name) {
    return reinterpret_cast<Function*>(dlsym(library(), name));
  }

  // Launches of a run, captured or not, on the stream.
  std::vector<fake::Launch> launches_of(const Plan& plan, const RunArgs& args, bool captured) {
    stream_.capture = captured ? cuda::CaptureStatus::kActive : cuda::CaptureStatus::kNone;
    driver_.launches.clear();
    RunArgs on_stream = args;
    on_stream.stream = &stream_;
    attention_.run(plan, on_stream);
    stream_.capture = cuda::CaptureStatus::kNone;
    return driver_.launches;
  }
  std::vector<std::string> calls_of(const std::function<void()>& act) {
    driver_.calls.clear();
    act();
    return driver_.calls;
  }

  // Up to four requests, at times padding.
  Problem random_problem() {
    Problem problem{.spec = spec_, .requests = {}};
    const auto below = [&](uint32_t bound) { return static_cast<int32_t>(random_() % bound); };
    for (int32_t count = below(5); count > 0; count--)
      problem.requests.push_back({below(8) ? 1 : 0, below(3) ? below(40'000) : below(50)});
    problem.layout.padding_rows = static_cast<int32_t>(4 - problem.num_tokens());
    return problem;
  }

  fake::Control& driver_ = *symbol<fake::Control*()>("rapt_fake_control")();
  fake::Stream stream_{
      .context = symbol<cuda::ContextHandle(int32_t)>("rapt_fake_primary_context")(0),
      .capture_id = 7};
  // Small heads: keys take long to make, and nothing reads them.
  AttentionSpec spec_ = make_spec(DType::kBFloat16, 4, 2, 8);
  Context context_{{.device = "cuda", .num_threads = 1, .cache_folder = ""}};
  Attention attention_{context_, spec_, {.backend = "flash_attention"}};
  const GraphEnvelope envelope_{.max_requests = 4,
                                .max_tokens = 4,
                                .max_query_len = 1,
                                .max_kv_len = 40'000,
                                .num_pages = 12'000};
  std::mt19937 random_{3};
};

bool same(const fake::Launch& a, const fake::Launch& b) {
  return a.kernel == b.kernel && a.parameters == b.parameters &&
         a.config.grid_x == b.config.grid_x && a.config.grid_y == b.config.grid_y &&
         a.config.grid_z == b.config.grid_z && a.config.block_x == b.config.block_x &&
         a.config.shared_bytes == b.config.shared_bytes;
}

template <typename Params>
Params params_of(const fake::Launch& launch) {
  Params params;
  EXPECT_EQ(launch.parameters.at(0).size(), sizeof(params));
  std::memcpy(&params, launch.parameters[0].data(), sizeof(params));
  return params;
}

// All but the padding.
auto values_of(const device::AttentionWork& work) {
  const device::AttentionRequest& request = work.of_request;
  return std::tuple(request.query_start, request.query_len, request.kv_len, request.kv_start,
                    request.first_page, request.mask_bit, work.request, work.row_begin,
                    work.row_end, work.key_begin, work.key_end, work.partial);
}
auto values_of(const device::MergeWork& merge) {
  return std::tuple(merge.partial, merge.part_rows, merge.num_parts, merge.query_start,
                    merge.row_begin, merge.row_end);
}
// Those of a launch.
size_t num_merges(const fake::Launch& launch) {
  return launch.config.grid_x / params_of<device::MergeParams>(launch).blocks_per_work;
}

// The first are those of the plain list; the others are nothing.
template <typename T>
void expect_list(const T* list, size_t count, const T* plain, size_t plain_count) {
  ASSERT_LE(plain_count, count);
  for (size_t i = 0; i < plain_count; i++) ASSERT_EQ(values_of(list[i]), values_of(plain[i])) << i;
  const auto* rest = reinterpret_cast<const char*>(list + plain_count);
  EXPECT_TRUE(std::all_of(rest, reinterpret_cast<const char*>(list + count),
                          [](char byte) { return byte == 0; }));
}

TEST_F(GraphLaunches, stay_the_same_bytes_and_read_the_lists_of_the_batchs_own_plan) {
  Plan plan = attention_.plan(envelope_, &stream_);
  std::vector<fake::Launch> captured;
  Tensors first(Problem{.spec = spec_, .requests = {{1, 1}, {1, 1}, {1, 1}, {1, 1}}});
  DeviceMirror mirror(context_);
  first.put(mirror);
  RunArgs args = first.args(plan, mirror);
  args.k.shape[0] = args.v.shape[0] = envelope_.num_pages;  // nothing is read
  captured = launches_of(plan, args, true);
  ASSERT_EQ(captured.size(), 2u);  // of the tile for decoding, and the merge
  const size_t workspace_bytes = plan.workspace_bytes();

  Plan plain = attention_.plan(Batch{});
  int num_cut = 0;
  for (int step = 0; step < 50; step++) {
    const Tensors tensors(random_problem());
    const Batch batch = tensors.batch();
    SCOPED_TRACE(tensors.problem().describe());
    EXPECT_THAT(
        calls_of([&] { attention_.replan(plan, batch, &stream_); }),
        AllOf(Not(Contains(StartsWith("cuMemAlloc"))), Not(Contains(StartsWith("cuMemHostAlloc"))),
              Not(Contains("cuStreamSynchronize")), Not(Contains("cuLaunchKernelEx"))));
    EXPECT_EQ(plan.workspace_bytes(), workspace_bytes);
    std::vector<fake::Launch> again;
    EXPECT_THAT(calls_of([&] { again = launches_of(plan, args, true); }),
                Not(Contains(StartsWith("cuMem"))));
    ASSERT_EQ(again.size(), captured.size());
    for (size_t i = 0; i < again.size(); i++) ASSERT_TRUE(same(again[i], captured[i])) << i;

    attention_.replan(plain, batch);
    RunArgs plain_args = args;
    ASSERT_LE(plain.workspace_bytes(), workspace_bytes);
    const std::vector<fake::Launch> launches = launches_of(plain, plain_args, false);
    const auto lists = params_of<device::AttentionParams>(captured[0]);
    const auto merges = params_of<device::MergeParams>(captured[1]);
    if (launches.empty()) {  // no queries
      expect_list<device::AttentionWork>(lists.works, captured[0].config.grid_y, nullptr, 0);
      continue;
    }
    const auto plain_lists = params_of<device::AttentionParams>(launches[0]);
    expect_list(lists.works, captured[0].config.grid_y, plain_lists.works,
                launches[0].config.grid_y);
    for (size_t i = 0; i < launches[0].config.grid_y; i++) {
      const int b = lists.works[i].request;
      EXPECT_EQ(std::memcmp(lists.page_ids + lists.works[i].of_request.first_page,
                            static_cast<const int32_t*>(batch.page_table.data) +
                                static_cast<int64_t>(b) * batch.page_table.shape[1],
                            static_cast<size_t>((batch.kv_len[b] + 15) / 16) * sizeof(int)),
                0);
    }
    num_cut += launches.size() == 2;
    if (launches.size() == 2) {
      const auto plain_merges = params_of<device::MergeParams>(launches[1]);
      expect_list(merges.works, num_merges(captured[1]), plain_merges.works,
                  num_merges(launches[1]));
    } else {
      expect_list<device::MergeWork>(merges.works, num_merges(captured[1]), nullptr, 0);
    }
  }
  EXPECT_GT(num_cut, 10);
  EXPECT_LT(num_cut, 50);
}

TEST_F(GraphLaunches, refuse_to_plan_while_two_batches_are_not_copied_and_on_captured_streams) {
  Plan plan = attention_.plan(envelope_, &stream_);
  const Tensors tensors(Problem{.spec = spec_, .requests = {{1, 1}}});
  const auto refused = [&] {
    std::string text;
    EXPECT_THAT(calls_of([&] {
                  text = error_of(ErrorCode::kInvalidArgument,
                                  [&] { attention_.replan(plan, tensors.batch(), &stream_); });
                }),
                Not(Contains(StartsWith("cuMem"))));
    return text;
  };
  driver_.failures["cuEventQuery"] = cuda::kNotReady;
  EXPECT_THAT(refused(), HasSubstr("the last 2 batches are not copied to the device yet"));
  driver_.failures.clear();
  stream_.capture = cuda::CaptureStatus::kActive;
  EXPECT_THAT(refused(), HasSubstr("the stream is being captured"));
  stream_.capture = cuda::CaptureStatus::kNone;
  stream_.context = symbol<cuda::ContextHandle(int32_t)>("rapt_fake_primary_context")(1);
  EXPECT_THAT(refused(), HasSubstr("is of another context"));
  stream_.context = symbol<cuda::ContextHandle(int32_t)>("rapt_fake_primary_context")(0);
  attention_.replan(plan, tensors.batch(), &stream_);
}

TEST_F(GraphLaunches, read_page_tables_of_this_device) {
  GraphEnvelope envelope = envelope_;
  alignas(16) static int32_t ids[4 * 2500];
  envelope.page_table =
      TensorView::contiguous(ids, DType::kInt32, {4, 2500}, {DeviceKind::kCuda, 1});
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { attention_.plan(envelope, &stream_); }),
              HasSubstr("page_table is on cuda:1: must be on the device that runs"));
}

TEST_F(GraphLaunches, leave_nothing_behind_in_the_driver) {
  const size_t device = driver_.device_memory.size(), host = driver_.host_memory.size();
  {
    const Plan plan = attention_.plan(envelope_, &stream_);
    EXPECT_EQ(driver_.events.size(), 2u);
    EXPECT_EQ(driver_.device_memory.size(), device + 1);
    EXPECT_THAT(plan.describe(), HasSubstr("graph envelope of 4 requests, 4 tokens"));
  }
  EXPECT_EQ(driver_.device_memory.size(), device);
  EXPECT_EQ(driver_.host_memory.size(), host);
  EXPECT_TRUE(driver_.events.empty());
}

}  // namespace
}  // namespace rapt::test
