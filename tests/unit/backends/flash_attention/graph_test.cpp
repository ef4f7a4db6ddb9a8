// Runs that a CUDA graph captures once, for batches that come later, against the fp64 oracle: on an
// emulated GPU, or on the device that RAPT_TEST_DEVICE names (RAPT_TEST_DEVICE=cuda), where they
// are larger.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/random_problem.hpp"
#include "launch/emulated.hpp"
#include "support/check.hpp"
#include "support/cuda_graph.hpp"
#include "support/error_of.hpp"

namespace rapt::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string& device_name() {
  static const std::string name = test_device_or("emulated-sm80");
  return name;
}
bool emulated() {
  return device_name().starts_with("emulated");
}

const Backend& backend() {
  static const Backend its = [] {
    // Each test is a process, which compiles what none before it has.
    setenv("RAPT_CACHE_DIR", KERNEL_CACHE, 0);
    return Backend{.name = "flash_attention", .device = device_name()};
  }();
  return its;
}
Context& gpu() {
  return context_of(backend());
}

// The same device's context for what a program does itself.
const cuda::Context& own_context() {
  static const cuda::Context context(cuda::Device(
      emulated() ? cuda::emulated_driver() : cuda::driver(), gpu().tensor_device().index));
  return context;
}

// A model's steps, all within an envelope: the spec, and each step's requests.
struct Steps {
  AttentionSpec spec;
  GraphEnvelope envelope;
  std::vector<std::vector<RequestLengths>> requests;
  bool table_on_device = false;

  // Tensors have the envelope's rows, those of the batch first: the others are poisoned.
  Problem problem(size_t step) const {
    Problem problem{.spec = spec, .requests = requests[step], .seed = 7 + step};
    problem.layout.padding_rows = static_cast<int32_t>(envelope.max_tokens - problem.num_tokens());
    problem.layout.kv_gap = spec.is_paged() ? 0 : 2;
    if (spec.sinks)
      for (int32_t head = 0; head < spec.num_query_heads; head++)
        problem.sinks.push_back(0.5f * static_cast<float>(head - 1));
    if (spec.custom_mask)
      problem.mask = [](int64_t id, int64_t i, int64_t j) { return (id + i * 7 + j * 3) % 5 < 2; };
    return problem;
  }
};

// The memory of all steps, which stays where it is.
class DeviceMemory {
 public:
  explicit DeviceMemory(const Steps& steps) : steps_(steps) {
    const AttentionSpec& spec = steps.spec;
    const GraphEnvelope& envelope = steps.envelope;
    const int64_t rows = envelope.max_tokens, heads = spec.num_query_heads;
    const int64_t row = spec.num_kv_heads * (spec.head_dim_qk + spec.dim_vo());
    const int64_t slots =
        spec.is_paged() ? envelope.num_pages * spec.page_size : envelope.max_kv_rows;
    q_ = buffer(rows * heads * spec.head_dim_qk * 2);
    keys_ = buffer(slots * row * 2);
    out_ = buffer(rows * heads * spec.dim_vo() * 2);
    lse_ = buffer(rows * heads * 4);
    sinks_ = buffer(heads * 4);
    mask_ = buffer(custom_mask_bytes(envelope));
    const int64_t width = spec.is_paged() ? (envelope.max_kv_len - 1) / spec.page_size + 3 : 1;
    table_ = buffer(envelope.max_requests * width * 4);
    table_view_ = view(table_, DType::kInt32, {envelope.max_requests, width});
  }

  TensorView table() const { return table_view_; }

  // Of a run, with a workspace of so many bytes.
  RunArgs args(const Steps& steps, size_t workspace_bytes) {
    const AttentionSpec& spec = steps.spec;
    const GraphEnvelope& envelope = steps.envelope;
    const int64_t tokens = envelope.max_tokens, qk = spec.head_dim_qk, vo = spec.dim_vo();
    const int64_t heads = spec.num_query_heads, kv_heads = spec.num_kv_heads;
    RunArgs args;
    args.q = view(q_, spec.dtype, {tokens, heads, qk});
    args.out = view(out_, spec.dtype, {tokens, heads, vo});
    args.lse = view(lse_, DType::kFloat32, {heads, tokens});
    args.k = args.v = view(keys_, spec.dtype, {1});
    if (spec.is_paged()) {
      const int64_t size = spec.page_size, page = size * kv_heads * (qk + vo);
      args.k = strided(keys_.data(), {envelope.num_pages, size, kv_heads, qk},
                       {page, kv_heads * qk, qk, 1});
      args.v = strided(static_cast<std::byte*>(keys_.data()) + size * kv_heads * qk * 2,
                       {envelope.num_pages, size, kv_heads, vo}, {page, kv_heads * vo, vo, 1});
    } else {
      const int64_t row = kv_heads * (qk + vo);
      args.k = strided(keys_.data(), {envelope.max_kv_rows, kv_heads, qk}, {row, qk, 1});
      args.v = strided(static_cast<std::byte*>(keys_.data()) + kv_heads * qk * 2,
                       {envelope.max_kv_rows, kv_heads, vo}, {row, vo, 1});
    }
    if (spec.sinks) args.sinks = view(sinks_, DType::kFloat32, {heads});
    if (spec.custom_mask)
      args.custom_mask = view(mask_, DType::kUInt8, {custom_mask_bytes(envelope)});
    workspace_ = buffer(static_cast<int64_t>(workspace_bytes));
    args.workspace = {workspace_.data(), workspace_bytes};
    args.stream = kThreadStream;
    return args;
  }

  // What the step's tensors hold; host memory of a plan's arguments as support/tensors.hpp gives
  // them. Gives the batch, whose table is where the envelope has it.
  Batch put(const Tensors& tensors, const RunArgs& host) {
    fill(q_, host.q.data, q_.bytes());
    fill(out_, host.out.data, out_.bytes());
    fill(lse_, host.lse.data, lse_.bytes());
    const Batch batch = tensors.batch();
    const int64_t rows = steps_.spec.is_paged() ? batch.num_pages : host.k.shape[0];
    fill(keys_, host.k.data, static_cast<size_t>(rows * host.k.stride[0]) * 2);
    if (host.sinks.has_value()) fill(sinks_, host.sinks.data, sinks_.bytes());
    if (host.custom_mask.has_value())
      fill(mask_, host.custom_mask.data, static_cast<size_t>(host.custom_mask.shape[0]));
    return steps_.table_on_device ? with_table(batch) : batch;
  }
  void fetch(const RunArgs& host) const {
    out_.copy_to_host(host.out.data, out_.bytes(), 0, kThreadStream);
    lse_.copy_to_host(host.lse.data, lse_.bytes(), 0, kThreadStream);
  }

 private:
  static DeviceBuffer buffer(int64_t bytes) {
    return DeviceBuffer(gpu(), static_cast<size_t>(bytes));
  }
  static TensorView view(const DeviceBuffer& buffer, DType dtype,
                         std::initializer_list<int64_t> shape) {
    return TensorView::contiguous(buffer.data(), dtype, shape, gpu().tensor_device());
  }
  TensorView strided(const void* data, std::initializer_list<int64_t> shape,
                     std::initializer_list<int64_t> stride) const {
    return TensorView::strided(data, steps_.spec.dtype, shape, stride, gpu().tensor_device());
  }
  // What is behind the bytes may hold anything: NaN.
  static void fill(DeviceBuffer& buffer, const void* from, size_t bytes) {
    ASSERT_LE(bytes, buffer.bytes());
    std::vector<std::byte> all(buffer.bytes(), std::byte{0xff});
    if (bytes) std::memcpy(all.data(), from, bytes);
    buffer.copy_from_host(all.data(), all.size(), 0, kThreadStream);
  }
  Batch with_table(Batch batch) {
    const int64_t width = table_view_.shape[1];
    std::vector<int32_t> ids(table_.bytes() / 4, -1);
    for (int64_t b = 0; b < batch.num_requests(); b++)
      std::copy_n(
          static_cast<const int32_t*>(batch.page_table.data) + b * batch.page_table.shape[1],
          batch.page_table.shape[1], &ids[b * width]);
    table_.copy_from_host(ids.data(), table_.bytes(), 0, kThreadStream);
    batch.page_table = table_view_;
    return batch;
  }

  const Steps& steps_;
  DeviceBuffer q_, keys_, out_, lse_, sinks_, mask_, table_, workspace_;
  TensorView table_view_;
};

// A mask of the envelope's size, that begins with the batch's bits.
DeviceBuffer mask_of(const GraphEnvelope& envelope, const RunArgs& host) {
  DeviceBuffer mask(gpu(), static_cast<size_t>(custom_mask_bytes(envelope)));
  if (host.custom_mask.has_value())
    mask.copy_from_host(host.custom_mask.data, static_cast<size_t>(host.custom_mask.shape[0]));
  return mask;
}

AttentionSpec spec_of(int32_t num_query_heads, int32_t num_kv_heads, int32_t head_dim,
                      int32_t page_size) {
  AttentionSpec spec = make_spec(DType::kBFloat16, num_query_heads, num_kv_heads, head_dim);
  spec.page_size = page_size;
  spec.needs_lse = true;
  return spec;
}

Steps decoding() {
  return {.spec = spec_of(4, 2, 64, 16),
          .envelope = {.max_requests = 4,
                       .max_tokens = 4,
                       .max_query_len = 1,
                       .max_kv_len = 3000,
                       .num_pages = 600},
          // Full, one that is cut, padding and no keys, nothing, longer than ever.
          .requests = {{{1, 17}, {1, 40}, {1, 5}, {1, 300}},
                       {{1, 2600}},
                       {{1, 20}, {0, 0}, {1, 1}, {1, 0}},
                       {},
                       {{1, 3000}, {0, 70}, {1, 33}, {1, 2900}}}};
}

Steps mixed() {
  Steps steps{
      .spec = spec_of(4, 2, 64, 16),
      .envelope = {.max_requests = 5, .max_tokens = 64, .max_kv_len = 1500, .num_pages = 300},
      .requests = {{{1, 40}, {9, 33}, {0, 0}, {50, 50}},
                   {{64, 1500}},
                   {{1, 1300}, {1, 20}, {1, 16}},
                   {{3, 0}, {6, 2}, {0, 9}, {1, 700}, {20, 40}},
                   {{1, 7}}}};
  steps.spec.sinks = true;
  steps.spec.window = {900, 0};
  return steps;
}

std::vector<std::pair<const char*, Steps>> all_steps() {
  Steps table_on_device = decoding();
  table_on_device.table_on_device = true;
  Steps invariant = mixed();
  invariant.spec.batch_invariant = true;
  invariant.table_on_device = true;
  Steps ragged{
      .spec = spec_of(2, 1, 32, 0),
      .envelope = {.max_requests = 3,
                   .max_tokens = 40,
                   .max_query_len = 20,
                   .max_kv_len = 400,
                   .max_kv_rows = 900},
      .requests = {
          {{20, 30}, {3, 400}}, {{1, 1}, {0, 0}, {7, 50}}, {{20, 400}, {20, 400}}, {{2, 90}}}};
  ragged.spec.kind = AttentionKind::kEncoderOnly;
  ragged.spec.custom_mask = true;
  std::vector<std::pair<const char*, Steps>> all = {{"decoding", decoding()},
                                                    {"table_on_device", table_on_device},
                                                    {"mixed", mixed()},
                                                    {"batch_invariant", invariant},
                                                    {"ragged_with_mask", ragged}};
  if (!emulated())
    for (auto& [name, steps] : all) {
      steps.envelope.max_kv_len *= 10;
      steps.envelope.num_pages *= 10;
      steps.envelope.max_kv_rows *= 10;
      for (auto& requests : steps.requests)
        for (RequestLengths& request : requests)
          if (request.kv_len > 20) request.kv_len *= 10;
    }
  return all;
}

class Graphs : public testing::TestWithParam<size_t> {};
constexpr size_t kNumSteps = 5;
INSTANTIATE_TEST_SUITE_P(Steps, Graphs, testing::Range(size_t{0}, kNumSteps),
                         [](const auto& given) {
                           return std::string(all_steps()[given.param].first);
                         });

TEST_P(Graphs, replayed_once_captured_compute_each_batch) {
  ASSERT_EQ(all_steps().size(), kNumSteps);
  Steps steps = all_steps()[GetParam()].second;
  DeviceMemory memory(steps);
  if (steps.table_on_device) steps.envelope.page_table = memory.table();
  const Attention attention(gpu(), steps.spec, {.backend = backend().name});
  ASSERT_EQ(attention.selection().graph, GraphSupport::kAlways);
  Plan plan = attention.plan(steps.envelope, kThreadStream);
  const size_t workspace_bytes = plan.workspace_bytes();
  const RunArgs args = memory.args(steps, workspace_bytes);
  const CudaGraph graph(own_context(), [&] { attention.run(plan, args); });

  int num_cut = 0;  // batches of which keys are cut
  const auto compute = [&](size_t step, bool is_planned) {
    const Problem problem = steps.problem(step);
    SCOPED_TRACE(testing::Message() << "step " << step << ": " << problem.describe());
    Tensors tensors(problem);
    const RunArgs host = tensors.args(plan);
    const Batch batch = memory.put(tensors, host);
    if (is_planned) attention.replan(plan, batch, kThreadStream);
    graph.launch();
    memory.fetch(host);
    if (!is_planned) {  // it is of no batch, so all rows are as they were
      for (size_t i = 0; i < static_cast<size_t>(host.out.shape[0] * host.out.stride[0]); i++)
        ASSERT_EQ(static_cast<const uint16_t*>(host.out.data)[i], 0xa5a5) << i;
      return;
    }
    const Outcome outcome = tensors.collect();
    EXPECT_EQ(verdict(problem, expect(problem, tensors.values()), outcome), "") << plan.describe();
    if (steps.spec.batch_invariant) {  // bits do not depend on whether there is a graph
      EXPECT_EQ(outcome.out, run(problem, backend()).out);
    }
    num_cut += plan.describe().find(", 0 rows merged") == std::string::npos;
    EXPECT_EQ(plan.workspace_bytes(), workspace_bytes);
  };
  compute(0, false);
  for (size_t step = 0; step < steps.requests.size(); step++) compute(step, true);
  compute(0, true);
  EXPECT_GT(num_cut, 0);
}

// All options, layouts and groups, each in an envelope that is larger; not captured, since tensors
// lie where the problem has them.
class RandomEnvelopes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomEnvelopes, testing::Range(0, 4));

TEST_P(RandomEnvelopes, have_room_for_their_problems) {
  const int count = emulated() ? 1 : 40;
  for (int i = 0; i < count && !HasFailure(); i++) {
    const auto seed = static_cast<uint64_t>(100 + GetParam() + 4 * i);
    Problem problem = random_gpu_problem(seed, gpu().device());
    problem.layout.padding_rows = 1 + static_cast<int32_t>(seed % 40);
    SCOPED_TRACE(problem.describe());
    Tensors tensors(problem);
    DeviceMirror mirror(gpu());
    tensors.put(mirror);
    const Batch batch = tensors.batch();
    if (batch.kv_len.empty() || std::ranges::max(batch.kv_len) == 0) continue;  // there is no cache
    GraphEnvelope envelope{
        .max_requests = static_cast<int32_t>(batch.num_requests()) + 3,
        .max_tokens = static_cast<int32_t>(batch.num_tokens()) + problem.layout.padding_rows,
        .max_kv_len = std::ranges::max(batch.kv_len) + static_cast<int32_t>(seed % 700)};
    (problem.spec.is_paged() ? envelope.num_pages : envelope.max_kv_rows) =
        problem.spec.is_paged() ? batch.num_pages : batch.kv_start.back();
    const Attention attention(gpu(), problem.spec, tensors.select_options(backend()));
    Plan plan = attention.plan(envelope, nullptr);
    attention.replan(plan, batch, nullptr);
    tensors.write_cache(attention, mirror);
    RunArgs args = tensors.args(plan, mirror);
    const DeviceBuffer mask = mask_of(envelope, tensors.args(plan));
    if (problem.spec.custom_mask)
      args.custom_mask = TensorView::contiguous(
          mask.data(), DType::kUInt8, {custom_mask_bytes(envelope)}, gpu().tensor_device());
    attention.run(plan, args);
    gpu().synchronize();
    tensors.fetch(mirror);
    EXPECT_EQ(verdict(problem, expect(problem, tensors.values()), tensors.collect()), "")
        << plan.describe();
  }
}

// As a program has it; here of two layers.
TEST(GraphsOfLayers, share_a_plan) {
  Steps steps = decoding();
  const Attention attention(gpu(), steps.spec, {.backend = backend().name});
  void* const stream = kThreadStream;
  // begin: capture
  // Decoding of up to 4 requests, of up to 3000 tokens each.
  const rapt::GraphEnvelope envelope{
      .max_requests = 4, .max_tokens = 4, .max_query_len = 1, .max_kv_len = 3000, .num_pages = 600};
  rapt::Plan plan = attention.plan(envelope, stream);
  // end: capture
  steps.envelope = envelope;
  std::vector<DeviceMemory> memories;
  memories.reserve(2);
  std::vector<RunArgs> layers;
  for (int layer = 0; layer < 2; layer++) {
    memories.emplace_back(steps);
    layers.push_back(memories.back().args(steps, plan.workspace_bytes()));
  }
  // begin: capture
  const CudaGraph graph(own_context(), [&] {
    for (const rapt::RunArgs& args : layers) attention.run(plan, args);
  });
  // end: capture
  for (size_t step = 0; step < steps.requests.size(); step++) {
    const Problem problem = steps.problem(step);
    Tensors tensors(problem);
    const RunArgs host = tensors.args(plan);
    Batch batch;
    for (DeviceMemory& memory : memories) batch = memory.put(tensors, host);
    // begin: replay
    attention.replan(plan, batch, stream);
    graph.launch();
    // end: replay
    for (const DeviceMemory& memory : memories) {
      memory.fetch(host);
      EXPECT_EQ(verdict(problem, expect(problem, tensors.values()), tensors.collect()), "") << step;
    }
  }
}

// A run of the steps' envelope, captured.
struct Captured {
  explicit Captured(const Steps& steps)
      : memory(steps),
        attention(gpu(), steps.spec, {.backend = backend().name}),
        plan(attention.plan(steps.envelope, kThreadStream)),
        args(memory.args(steps, plan.workspace_bytes())),
        graph(own_context(), [&] { attention.run(plan, args); }) {}
  DeviceMemory memory;
  Attention attention;
  Plan plan;
  RunArgs args;
  CudaGraph graph;
};

// The host a step ahead: what is replanned reaches the launches that come after it alone.
TEST(GraphsOfBatches, are_planned_while_the_one_before_runs) {
  const Steps steps = mixed();
  Captured captured(steps);
  auto& [memory, attention, plan, args, graph] = captured;
  const Problem problem = steps.problem(0);
  Tensors tensors(problem), other(steps.problem(2));
  const RunArgs host = tensors.args(plan);
  const Batch batch = memory.put(tensors, host);
  gpu().synchronize(kThreadStream);
  attention.replan(plan, other.batch(), kThreadStream);
  graph.launch();  // of garbage, which is written to rows of the batch below
  attention.replan(plan, batch, kThreadStream);
  graph.launch();
  memory.fetch(host);
  EXPECT_EQ(verdict(problem, expect(problem, tensors.values()), tensors.collect()), "");
}

TEST(GraphsOfBatches, keep_the_last_one_where_another_is_refused) {
  const Steps steps = decoding();
  Captured captured(steps);
  auto& [memory, attention, plan, args, graph] = captured;
  const Problem problem = steps.problem(0);
  Tensors tensors(problem);
  const RunArgs host = tensors.args(plan);
  const Batch batch = memory.put(tensors, host);
  attention.replan(plan, batch, kThreadStream);

  Problem larger = problem;
  larger.requests = {{2, 20}, {1, 3100}, {1, 1}, {1, 1}, {1, 1}};
  const Tensors tensors_of_larger(larger);
  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument,
               [&] { attention.replan(plan, tensors_of_larger.batch(), kThreadStream); }),
      AllOf(HasSubstr("the number of requests is 5, at most 4"),
            HasSubstr("query tokens is 6, at most 4"), HasSubstr("query_len[0] is 2, at most 1"),
            HasSubstr("kv_len[1] is 3100, at most 3000")));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { attention.replan(plan, batch); }),
              HasSubstr("the plan has a graph envelope: name the stream"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         const CudaGraph other(
                             own_context(), [&] { attention.replan(plan, batch, kThreadStream); });
                       }),
              HasSubstr("the stream is being captured"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         const CudaGraph other(
                             own_context(), [&] { attention.plan(steps.envelope, kThreadStream); });
                       }),
              HasSubstr("the stream is being captured"));
  Plan plain = attention.plan(batch);
  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument, [&] { attention.replan(plain, batch, kThreadStream); }),
      HasSubstr("the plan has no graph envelope"));
  graph.launch();
  memory.fetch(host);
  EXPECT_EQ(verdict(problem, expect(problem, tensors.values()), tensors.collect()), "");
}

}  // namespace
}  // namespace rapt::test
