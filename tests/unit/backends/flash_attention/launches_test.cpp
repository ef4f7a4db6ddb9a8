// What reaches the driver where a grid cannot have all works. Compiler and driver are fake ones.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "fakes/libcuda.hpp"
#include "kernels/abi/attention.hpp"
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
  auto* primary_context = reinterpret_cast<cuda::ContextHandle (*)(int32_t)>(
      dlsym(dlopen(FAKE_LIBCUDA, RTLD_NOW), "rapt_fake_primary_context"));
  fake::Stream stream{
      .context = primary_context(0), .capture = cuda::CaptureStatus::kActive, .capture_id = 7};
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
