// What reaches the driver of a run. Compiler and driver are fake ones.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "fakes/libcuda.hpp"
#include "kernels/abi/attention.hpp"
#include "kernels/abi/merge.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace rapt::test {
namespace {

fake::Control& fake_driver() {
  setenv("RAPT_LIBCUDA", FAKE_LIBCUDA, 1);
  setenv("RAPT_NVRTC", FAKE_LIBNVRTC, 1);
  void* library = dlopen(FAKE_LIBCUDA, RTLD_NOW);
  auto* control = reinterpret_cast<fake::Control* (*)()>(dlsym(library, "rapt_fake_control"));
  return *control();
}
// Of the first device.
cuda::ContextHandle primary_context() {
  return reinterpret_cast<cuda::ContextHandle (*)(int32_t)>(
      dlsym(dlopen(FAKE_LIBCUDA, RTLD_NOW), "rapt_fake_primary_context"))(0);
}

// One request of one token, its tensors on the device.
struct Decoding {
  explicit Decoding(int32_t keys)
      : problem{.spec = {.num_query_heads = 2,
                         .num_kv_heads = 2,
                         .head_dim_qk = 8,
                         .dtype = DType::kBFloat16,
                         .page_size = 16},
                .requests = {{1, keys}}} {
    tensors.put(mirror);
  }
  Batch batch() { return tensors.batch(mirror, /*table_on_device=*/false); }

  Problem problem;
  Context context{{.device = "cuda", .num_threads = 1, .cache_folder = ""}};
  Attention attention{context, problem.spec, {.backend = "flash_attention"}};
  Tensors tensors{problem};
  DeviceMirror mirror{context};
};

TEST(Launches, more_works_than_a_grid_has_rows_are_split) {
  fake::Control& driver = fake_driver();
  // A work for each request, so 65,535 and the rest: the most that a grid's y may be.
  constexpr size_t kRequests = 70'000, kMost = 65'535;
  Problem problem{.spec = {.num_query_heads = 2,
                           .num_kv_heads = 2,
                           .head_dim_qk = 8,
                           .dtype = DType::kBFloat16,
                           .page_size = 0},
                  .requests = std::vector<RequestLengths>(kRequests, {1, 1})};
  Context context({.device = "cuda", .num_threads = 1, .cache_folder = ""});
  const Attention attention(context, problem.spec, {.backend = "flash_attention"});
  Tensors tensors(problem);
  DeviceMirror mirror(context);
  tensors.put(mirror);
  const Plan plan = attention.plan(tensors.batch(mirror, /*table_on_device=*/false));
  driver.launches.clear();
  attention.run(plan, tensors.args(plan, mirror));

  ASSERT_EQ(driver.launches.size(), 2u) << plan.describe();
  std::vector<device::AttentionParams> params(2);
  for (size_t i = 0; i < 2; i++) {
    const fake::Launch& launch = driver.launches[i];
    EXPECT_EQ(launch.config.grid_x, 2u);  // KV heads
    EXPECT_EQ(launch.config.grid_y, i == 0 ? kMost : kRequests - kMost);
    ASSERT_EQ(launch.parameters.size(), 1u);
    ASSERT_EQ(launch.parameters[0].size(), sizeof(params[i]));
    std::memcpy(&params[i], launch.parameters[0].data(), sizeof(params[i]));
  }
  EXPECT_EQ(params[1].works - params[0].works, static_cast<std::ptrdiff_t>(kMost));
  params[1].works = params[0].works;
  EXPECT_EQ(std::memcmp(&params[0], &params[1], sizeof(params[0])), 0);
}

// Keys are cut, so that a run has two kernels.
TEST(Launches, a_run_is_one_call_on_its_plans_first_stream_and_the_same_kernels_elsewhere) {
  fake::Control& driver = fake_driver();
  Decoding step(20'000);
  const Batch batch = step.batch();
  Plan plan = step.attention.plan(batch);
  fake::Stream first{.context = primary_context()}, second = first;
  const int32_t num_graphs = driver.num_graphs;

  RunArgs args = step.tensors.args(plan, step.mirror);
  std::vector<std::string> calls;
  const auto run = [&](fake::Stream& stream) {
    args.stream = &stream;
    driver.launches.clear(), driver.calls.clear();
    step.attention.run(plan, args);
    calls.clear();
    for (const std::string& call : driver.calls)
      if (call.starts_with("cuGraph") || call.starts_with("cuLaunch")) calls.push_back(call);
    return driver.launches;
  };
  const auto expect_same = [](const std::vector<fake::Launch>& ones,
                              const std::vector<fake::Launch>& others) {
    ASSERT_EQ(ones.size(), 2u);
    ASSERT_EQ(others.size(), 2u);
    for (size_t i = 0; i < 2; i++) {
      EXPECT_EQ(ones[i].kernel, others[i].kernel);
      EXPECT_EQ(ones[i].parameters, others[i].parameters);
      EXPECT_EQ(ones[i].config.grid_x, others[i].config.grid_x);
      EXPECT_EQ(ones[i].config.grid_y, others[i].config.grid_y);
      EXPECT_EQ(ones[i].config.block_x, others[i].config.block_x);
      EXPECT_EQ(ones[i].config.shared_bytes, others[i].config.shared_bytes);
    }
  };
  const auto chained = testing::ElementsAre("cuGraphExecKernelNodeSetParams_v2",
                                            "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch");
  const auto one_by_one = testing::ElementsAre("cuLaunchKernelEx", "cuLaunchKernelEx");

  const std::vector<fake::Launch> expected = run(first);
  EXPECT_THAT(calls, chained);
  for (const fake::Launch& launch : expected)
    EXPECT_EQ(launch.config.stream, reinterpret_cast<cuda::StreamHandle>(&first));
  // Runs of several streams are not to wait for each other.
  expect_same(run(second), expected);
  EXPECT_THAT(calls, one_by_one);
  // A graph of the caller's takes kernels.
  first.capture = cuda::CaptureStatus::kActive, first.capture_id = 7;
  expect_same(run(first), expected);
  EXPECT_THAT(calls, one_by_one);
  first.capture = cuda::CaptureStatus::kNone;
  expect_same(run(first), expected);
  EXPECT_THAT(calls, chained);
  // Planned anew, runs may have another stream.
  step.attention.replan(plan, batch);
  run(second);
  EXPECT_THAT(calls, chained);
  EXPECT_EQ(driver.num_graphs, num_graphs);  // the chain is the one it was
}

// A chain is set and launched by one thread at a time; the others launch kernel by kernel.
TEST(Launches, runs_of_several_threads_keep_their_kernels_together) {
  fake::Control& driver = fake_driver();
  Decoding step(20'000);
  const Plan plan = step.attention.plan(step.batch());
  fake::Stream stream{.context = primary_context()};
  RunArgs args = step.tensors.args(plan, step.mirror);
  args.stream = &stream;
  constexpr int kThreads = 4, kRuns = 500;
  const auto out_of = [&](int thread) { return static_cast<char*>(args.out.data) + 64 * thread; };
  driver.launches.clear(), driver.calls.clear();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++)
    threads.emplace_back([&, its = args, i]() mutable {
      its.out.data = out_of(i);  // nothing is written
      for (int run = 0; run < kRuns; run++) step.attention.run(plan, its);
    });
  for (std::thread& thread : threads) thread.join();

  std::map<const void*, int> attended, merged;  // by where the result goes
  for (const fake::Launch& launch : driver.launches) {
    const std::string& bytes = launch.parameters.at(0);
    if (bytes.size() == sizeof(device::AttentionParams)) {
      device::AttentionParams params;
      std::memcpy(&params, bytes.data(), sizeof(params));
      attended[params.out]++;
    } else {
      device::MergeParams params;
      ASSERT_EQ(bytes.size(), sizeof(params));
      std::memcpy(&params, bytes.data(), sizeof(params));
      merged[params.out]++;
    }
  }
  for (int i = 0; i < kThreads; i++) {
    EXPECT_EQ(attended[out_of(i)], kRuns);
    EXPECT_EQ(merged[out_of(i)], kRuns);
  }
  EXPECT_GT(std::count(driver.calls.begin(), driver.calls.end(), "cuGraphLaunch"), 0);
}

TEST(Launches, a_plan_of_more_kernels_than_a_chain_has_launches_them_one_by_one) {
  fake::Control& driver = fake_driver();
  constexpr int kRequests = 5 * 65'535 + 1, kFew = 3;  // of a work each: six kernels, and one
  Context context({.device = "cuda", .num_threads = 1, .cache_folder = ""});
  AttentionSpec spec = make_spec(DType::kBFloat16, 2, 2, 8);
  spec.page_size = 0;
  spec.needs_lse = false;
  const Attention attention(context, spec, {.backend = "flash_attention"});
  std::vector<int32_t> starts(kRequests + 1), kv_len(kRequests, 1);
  std::iota(starts.begin(), starts.end(), 0);
  const auto batch_of = [&](size_t requests) {
    Batch batch;
    batch.query_start = batch.kv_start = std::span(starts).first(requests + 1);
    batch.kv_len = std::span(kv_len).first(requests);
    return batch;
  };
  DeviceBuffer memory(context, size_t{kRequests} * 2 * 8 * 2);
  RunArgs args;
  for (TensorView* view : {&args.q, &args.k, &args.v, &args.out}) {
    *view = TensorView::contiguous(memory.data(), DType::kBFloat16, {kRequests, 2, 8});
    view->device = memory.device();
  }
  Plan plan = attention.plan(batch_of(kFew));
  const auto launches = [&](const char* call, size_t requests) {
    attention.replan(plan, batch_of(requests));
    driver.calls.clear(), driver.launches.clear();
    attention.run(plan, args);
    EXPECT_EQ(std::count(driver.calls.begin(), driver.calls.end(), call), requests == kFew ? 1 : 6);
    return driver.launches.size();
  };
  EXPECT_EQ(launches("cuGraphLaunch", kFew), 1u);
  EXPECT_EQ(launches("cuLaunchKernelEx", kRequests), 6u);
  EXPECT_EQ(launches("cuGraphLaunch", kFew), 1u);
}

// Where the driver makes no graph, runs go as they do without.
TEST(Launches, a_chain_that_cannot_be_made_is_done_without) {
  fake::Control& driver = fake_driver();
  Decoding step(40);
  driver.failures["cuGraphInstantiateWithFlags"] = cuda::kOutOfMemory;
  const Plan plan = step.attention.plan(step.batch());
  driver.failures.clear(), driver.calls.clear();
  step.attention.run(plan, step.tensors.args(plan, step.mirror));
  EXPECT_THAT(driver.calls, testing::Contains("cuLaunchKernelEx"));
}

TEST(Launches, checks_that_wait_are_refused_while_a_stream_is_captured) {
  fake::Control& driver = fake_driver();
  Problem problem{.spec = {.num_query_heads = 2,
                           .num_kv_heads = 2,
                           .head_dim_qk = 8,
                           .dtype = DType::kBFloat16,
                           .page_size = 16},
                  .requests = {{1, 40}}};
  Context context(
      {.device = "cuda", .num_threads = 1, .cache_folder = "", .check_device_indices = true});
  const Attention attention(context, problem.spec, {.backend = "flash_attention"});
  Tensors tensors(problem);
  DeviceMirror mirror(context);
  tensors.put(mirror);
  fake::Stream stream{
      .context = primary_context(), .capture = cuda::CaptureStatus::kActive, .capture_id = 7};
  const auto refused = [&](const auto& call) {
    driver.launches.clear();
    driver.calls.clear();
    EXPECT_THAT(error_of(ErrorCode::kUnsupported, call),
                testing::HasSubstr("being captured, and check_device_indices waits"));
    EXPECT_TRUE(driver.launches.empty());
    EXPECT_THAT(driver.calls, testing::Not(testing::Contains(testing::StartsWith("cuMem"))));
  };
  const auto run = [&](bool table_on_device) {
    const Plan plan = attention.plan(tensors.batch(mirror, table_on_device));
    RunArgs args = tensors.args(plan, mirror);
    args.stream = &stream;
    if (table_on_device)
      refused([&] { attention.run(plan, args); });
    else
      attention.run(plan, args);  // its ids were looked at by plan()
  };
  run(true);
  run(false);
  EXPECT_EQ(driver.launches.size(), 1u);

  GuardedBuffer rows(2 * 2 * 8), cache(2 * 16 * 2 * 8), slots(8);
  slots.as<int64_t>()[0] = 3;
  for (const GuardedBuffer* buffer : {&rows, &cache, &slots}) mirror.put(*buffer);
  const TensorView k =
      mirror.view(TensorView::contiguous(rows.data(), DType::kBFloat16, {1, 2, 8}));
  const TensorView kv =
      mirror.view(TensorView::contiguous(cache.data(), DType::kBFloat16, {1, 16, 2, 8}));
  refused([&] {
    attention.write_kv(
        {.k = k,
         .v = k,
         .slot_mapping = mirror.view(TensorView::contiguous(slots.data(), DType::kInt64, {1})),
         .cache = {kv, kv},
         .stream = &stream});
  });
}

TEST(Launches, from_hopper_on_a_merge_of_states_may_begin_beside_the_end_of_what_is_before_it) {
  fake::Control& driver = fake_driver();
  for (const auto& [device, overlaps] : {std::pair{"cuda:0", true}, {"cuda:1", false}}) {
    Context context({.device = device, .num_threads = 1, .cache_folder = ""});
    DeviceMirror mirror(context);
    GuardedBuffer out(1 * 2 * 8 * 2), lse(2 * 1 * 4);
    for (const GuardedBuffer* buffer : {&out, &lse}) mirror.put(*buffer);
    const std::vector<TensorView> outs(
        2, mirror.view(TensorView::contiguous(out.data(), DType::kBFloat16, {1, 2, 8})));
    const std::vector<TensorView> lses(
        2, mirror.view(TensorView::contiguous(lse.data(), DType::kFloat32, {2, 1})));
    driver.launches.clear();
    merge(context, {.outs = outs, .lses = lses, .out = outs[0]});
    ASSERT_EQ(driver.launches.size(), 1u);
    std::vector<cuda::LaunchAttributeId> ids;
    for (const cuda::LaunchAttribute& one : driver.launches[0].attributes) ids.push_back(one.id);
    if (overlaps)
      EXPECT_THAT(ids,
                  testing::ElementsAre(cuda::LaunchAttributeId::kProgrammaticStreamSerialization));
    else
      EXPECT_THAT(ids, testing::IsEmpty());
  }
}

}  // namespace
}  // namespace rapt::test
